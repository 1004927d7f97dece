"""The global step against plain Python, and its ties by hand."""

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from diptych_mine.keep.joining import NAME, AddressTable, gather
from diptych_mine.keep.keep import COMMON, HOST, KEPT, WORSE, Pairs, choose, clusters, near_pairs
from diptych_mine.layout import RunLayout
from diptych_mine.tables import write_shard


def pairs(rows: list[tuple[int, int, int, int, int, float, int]]) -> Pairs:
    columns = list(zip(*rows, strict=True)) or [()] * 7
    kinds = [np.uint64] * 5 + [np.float32, np.uint8]
    return Pairs(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def plain(rows: list[tuple[int, int, int, int, int, float, int]], common: int, near: int) -> set[int]:
    """Numbers of the pairs that are kept, in the slowest way."""
    group = {row[0]: {row[0]} for row in rows}
    hashes = {row[0]: row[1] for row in rows}
    for a, b in combinations(hashes, 2):
        if (hashes[a] ^ hashes[b]).bit_count() <= near and group[a] is not group[b]:
            group[a] |= group[b]
            for one in group[a]:
                group[one] = group[a]
    of_text: dict[int, set[int]] = {}
    for row in rows:
        of_text.setdefault(row[2], set()).add(min(group[row[0]]))
    best: dict[int, tuple[tuple[float, ...], int]] = {}
    for number, (picture, _, text, page, _, score, kind) in enumerate(rows):
        if len(of_text[text]) <= common:
            rank = ((-np.float32(score), kind, text, page, picture), number)
            best[min(group[picture])] = min(best.get(min(group[picture]), rank), rank)
    return {number for _, number in best.values()}


@pytest.mark.parametrize("seed", range(6))
def test_it_keeps_what_plain_python_keeps(seed: int) -> None:
    rng = random.Random(seed)
    hashes = [rng.getrandbits(64) for _ in range(40)]
    hashes += [one ^ (1 << rng.randrange(64)) ^ (1 << rng.randrange(64)) for one in hashes[:20]]
    pictures = {n: hashes[n] for n in range(60)}
    rows = []
    for _ in range(300):
        picture = rng.randrange(60)
        rows.append((picture, pictures[picture], rng.randrange(50), rng.randrange(30), rng.randrange(4),
                     rng.choice((0.1, 0.5, 0.9)), rng.randrange(5)))  # fmt: skip
    rows = sorted(set(rows))
    kept = set(np.flatnonzero(choose(pairs(rows), 5, 4, None) == KEPT).tolist())
    assert kept == plain(rows, 5, 4)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    again = {shuffled[n] for n in np.flatnonzero(choose(pairs(shuffled), 5, 4, None) == KEPT)}
    assert again == {rows[n] for n in kept}


def test_near_pairs_are_all_found_and_no_others() -> None:
    rng = random.Random(0)
    hashes = [rng.getrandbits(64) for _ in range(300)]
    hashes += [one ^ sum(1 << bit for bit in rng.sample(range(64), n % 7)) for n, one in enumerate(hashes)]
    unique = np.unique(np.array(hashes, np.uint64))
    wanted = {(a, b) for a, b in combinations(range(len(unique)), 2) if int(unique[a] ^ unique[b]).bit_count() <= 4}
    a, b = near_pairs(unique, 4)
    assert set(zip(a.tolist(), b.tolist(), strict=True)) == wanted


def test_ties_fall_by_score_kind_text_and_page() -> None:
    rows = [(1, 5, 9, 9, 0, 0.5, 1), (1, 5, 8, 9, 0, 0.5, 1), (1, 5, 8, 3, 0, 0.5, 1), (1, 5, 99, 9, 0, 0.5, 0)]
    assert choose(pairs(rows), None, 4, None).tolist() == [WORSE, WORSE, WORSE, KEPT]
    assert choose(pairs(rows[:3]), None, 4, None).tolist() == [WORSE, WORSE, KEPT]
    assert choose(pairs([*rows, (1, 5, 1, 1, 0, 0.6, 4)]), None, 4, None).tolist()[-1] == KEPT


def test_a_common_text_goes_before_the_best_is_chosen() -> None:
    rows = [(n, n * 0x0101010101010101, 7, n, 0, 0.9, 0) for n in range(11)] + [(0, 0, 1, 0, 0, 0.1, 4)]
    assert choose(pairs(rows), 10, None, None).tolist() == [COMMON] * 11 + [KEPT]
    assert choose(pairs(rows), 11, None, None).tolist() == [KEPT] * 11 + [WORSE]


def test_copies_of_one_picture_do_not_make_a_text_common() -> None:
    rows = [(n, n & 1, 7, n, 0, 0.0, 0) for n in range(20)]
    assert (choose(pairs(rows), 10, 4, None) == KEPT).sum() == 1


def test_a_host_keeps_its_best() -> None:
    rows = [(n, n * 0x0101010101010101, n, n, n % 2, n / 10, 0) for n in range(6)]
    assert choose(pairs(rows), None, None, 2).tolist() == [HOST, HOST, KEPT, KEPT, KEPT, KEPT]


def test_without_near_copies_only_equal_files_are_one() -> None:
    same = np.array([1, 2, 2], np.uint64), np.array([0, 0, 0], np.uint64)
    assert clusters(*same, None).tolist() == [0, 1, 1]
    assert clusters(*same, 4).tolist() == [0, 0, 0]
    assert choose(pairs([]), 10, 4, None).tolist() == []


def test_the_last_answer_counts_and_redirects_are_followed_up_to_the_most(tmp_path: Path) -> None:
    layout, moves = RunLayout(tmp_path), {"a": "b", "b": "c", "c": ""}
    for turn in ("1" * 16, "2" * 16):
        rows = [
            {
                "address": one,
                "final": one,
                "moved": to,
                "reason": "",
                "status": 200,
                "hops": 0,
                "offset": 0,
                "length": 0,
                "date": turn,
            }
            for one, to in moves.items()
        ]
        write_shard(layout, "index", turn, rows, {})
        write_shard(layout, "measured", turn, [{"address": one, "fails": []} for one in moves], {})
    table = AddressTable.open(layout.work(NAME), gather(layout, [("1" * 16,) * 2, ("2" * 16,) * 2]))
    (found,), (lost,) = table.rows(["a"], 2), table.rows(["a"], 1)
    assert found is not None
    assert (found["address"], found["date"], found["reason"]) == ("c", "2" * 16, "")
    assert lost is not None
    assert lost["reason"] == "too many redirects"
