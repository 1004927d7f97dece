"""The global step against plain Python, and its ties by hand."""

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from diptych.vision.fingerprints import U64, matrix
from diptych_mine.keep.joining import NAME, AddressTable, gather
from diptych_mine.keep.keep import BELOW, COMMON, HOST, KEPT, WORSE, Pairs, choose, clusters
from diptych_mine.layout import RunLayout
from diptych_mine.tables import write_shard


def pairs(rows: list[tuple[int, int, int, int, int, float, int]]) -> Pairs:
    columns = list(zip(*rows, strict=True)) or [()] * 7
    kinds = [np.uint64, object] + [np.uint64] * 3 + [np.float32, np.uint8]
    picture, hashes, *others = (np.array(column, kind) for column, kind in zip(columns, kinds, strict=True))
    return Pairs(picture, words(hashes), *others)


def words(hashes: Iterable[int]) -> U64:
    return matrix(int(one).to_bytes(32) for one in hashes)


def plain(rows: list[tuple[int, int, int, int, int, float, int]], common: int, near: int) -> set[int]:
    """Numbers of the pairs that are kept, in the slowest way."""
    order = sorted(rows, key=lambda row: (-np.float32(row[5]), row[6], row[2], row[3], row[0]))
    group: dict[int, int] = {}
    taken: list[int] = []
    for picture, own, *_ in order:
        if picture not in group:
            of = next((one for one in taken if (one ^ own).bit_count() <= near), None)
            taken += [own] if of is None else []
            group[picture] = own if of is None else of
    of_text: dict[int, set[int]] = {}
    for row in rows:
        of_text.setdefault(row[2], set()).add(group[row[0]])
    best: dict[int, tuple[tuple[float, ...], int]] = {}
    for number, (picture, _, text, page, _, score, kind) in enumerate(rows):
        if len(of_text[text]) <= common:
            rank = ((-np.float32(score), kind, text, page, picture), number)
            best[group[picture]] = min(best.get(group[picture], rank), rank)
    return {number for _, number in best.values()}


@pytest.mark.parametrize("seed", range(6))
def test_it_keeps_what_plain_python_keeps(seed: int) -> None:
    rng = random.Random(seed)
    hashes = [rng.getrandbits(256) for _ in range(20)]
    for one in hashes[:10] * 4:  # some are near each other, some in chains
        hashes.append(one ^ sum(1 << bit for bit in rng.sample(range(256), 12)))
    pictures = {n: hashes[n] for n in range(60)}
    rows = []
    for _ in range(300):
        picture = rng.randrange(60)
        rows.append((picture, pictures[picture], rng.randrange(50), rng.randrange(30), rng.randrange(4),
                     rng.choice((0.1, 0.5, 0.9)), rng.randrange(5)))  # fmt: skip
    rows = sorted(set(rows))
    kept = set(np.flatnonzero(choose(pairs(rows), 5, 16, None) == KEPT).tolist())
    assert kept == plain(rows, 5, 16)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    again = {shuffled[n] for n in np.flatnonzero(choose(pairs(shuffled), 5, 16, None) == KEPT)}
    assert again == {rows[n] for n in kept}


def test_a_copy_of_a_copy_is_kept_and_a_copy_goes_to_the_best_image() -> None:
    chain = words((1 << 4 * n) - 1 for n in range(5))  # neighbours differ in 4 bits
    assert clusters(np.arange(5, dtype=np.uint64), chain, 4).tolist() == [0, 0, 2, 2, 4]
    order = [1, 0, 2, 3, 4]
    assert clusters(np.arange(5, dtype=np.uint64), chain[order], 4).tolist() == [0, 0, 0, 3, 3]


def test_ties_fall_by_score_kind_text_and_page() -> None:
    rows = [(1, 5, 9, 9, 0, 0.5, 1), (1, 5, 8, 9, 0, 0.5, 1), (1, 5, 8, 3, 0, 0.5, 1), (1, 5, 99, 9, 0, 0.5, 0)]
    assert choose(pairs(rows), None, 4, None).tolist() == [WORSE, WORSE, WORSE, KEPT]
    assert choose(pairs(rows[:3]), None, 4, None).tolist() == [WORSE, WORSE, KEPT]
    assert choose(pairs([*rows, (1, 5, 1, 1, 0, 0.6, 4)]), None, 4, None).tolist()[-1] == KEPT


def test_the_best_share_of_the_images_is_kept_before_pairs_of_a_host_are_counted() -> None:
    rows = [(n, n << 100, n, n, 0, 0.1 * n, 0) for n in range(10)] + [(9, 9 << 100, 99, 9, 0, 0.0, 0)]
    assert choose(pairs(rows), None, None, None, 0.3).tolist() == [BELOW] * 7 + [KEPT] * 3 + [WORSE]
    assert choose(pairs(rows), None, None, 2, 0.3).tolist() == [BELOW] * 7 + [HOST, KEPT, KEPT, WORSE]
    assert choose(pairs(rows), None, None, None, 1.0).tolist() == [KEPT] * 10 + [WORSE]


def test_a_common_text_goes_before_the_best_is_chosen() -> None:
    rows = [(n, n << 100, 7, n, 0, 0.9, 0) for n in range(11)] + [(0, 0, 1, 0, 0, 0.1, 4)]
    assert choose(pairs(rows), 10, None, None).tolist() == [COMMON] * 11 + [KEPT]
    assert choose(pairs(rows), 11, None, None).tolist() == [KEPT] * 11 + [WORSE]


def test_copies_of_one_picture_do_not_make_a_text_common() -> None:
    rows = [(n, n & 1, 7, n, 0, 0.0, 0) for n in range(20)]
    assert (choose(pairs(rows), 10, 4, None) == KEPT).sum() == 1


def test_a_host_keeps_its_best() -> None:
    rows = [(n, n << 100, n, n, n % 2, n / 10, 0) for n in range(6)]
    assert choose(pairs(rows), None, None, 2).tolist() == [HOST, HOST, KEPT, KEPT, KEPT, KEPT]


def test_without_near_copies_only_equal_files_are_one() -> None:
    same = np.array([1, 2, 2], np.uint64), words([0, 0, 0])
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
