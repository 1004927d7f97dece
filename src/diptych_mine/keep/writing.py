"""The last stage: write the verdict on each image, and the records and files of the kept images."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.runtime.files import sweep, write_atomically
from diptych.runtime.outputs import write_noted
from diptych_mine import funnel
from diptych_mine.checking import Times, read_json
from diptych_mine.job import MiningJob
from diptych_mine.keep.joining import key_of
from diptych_mine.keep.keep import BELOW, COMMON, HOST, KEPT, Pairs, choose
from diptych_mine.layout import RECORDS, RunLayout, damaged
from diptych_mine.pages.addresses import host_of
from diptych_mine.pages.reading import body_of
from diptych_mine.pages.texts import is_title
from diptych_mine.rules import KINDS, ORDER, VERSION
from diptych_mine.tables import Row, lines_of, read_rows, write_json, write_rows

PICTURE = re.compile(r"[0-9a-f]{64}\.\w+")
LINES = 10_000  # at most this many lines per file of records
_NARROW = ("page", "title", "address", "texts", "fails", "sha256", "phash")
_PAIR = np.dtype([("picture", "u8"), ("phash", "V32"), ("text", "u8"), ("page", "u8"), ("host", "u8"), ("score", "f4"),
                  ("kind", "u1"), ("shard", "i8"), ("row", "i8"), ("place", "i8")])  # fmt: skip


@dataclass(frozen=True)
class KeepStage:
    """Writes the records that are kept, the reason why each other image was dropped, and the counts after each rule.

    It reads the table `joined`.
    """

    job: MiningJob
    write_page: Callable[[RunLayout, funnel.Funnel, dict[str, Any]], object] | None

    def run(self, pages: Sequence[str], indexes: Sequence[str], joined: Sequence[str]) -> dict[str, Any]:
        """Write all files of the result, and return the content of funnel.json."""
        layout, rules, begun = self.job.layout, self.job.settings.keep, self.job.about
        pairs, places = pairs_of(layout, joined)
        verdict = choose(pairs, rules.common_text, rules.near_bits, rules.host_pairs, rules.top)
        kept = write_verdicts(layout, places, verdict, pages)
        by = f"diptych-mine/rules-{VERSION}/{begun['scorer'] or 'no-scorer'}"
        write_records(layout, kept, by)
        write_times(layout, indexes, kept)
        counted = funnel.of(layout)
        about = {
            "scorer": begun["scorer"] or "none: every pair that passes the rules is kept",
            "judges": {place: begun["judges"].get(place, "not judged") for place in ("nsfw", "realism")},
            "vocabulary": "by a vocabulary" if begun["vocabulary"] is not None else "not judged: no --vocab was given",
            "rules": VERSION,
        }
        numbers = counted.as_json(funnel.inputs_of(layout, pages), about)
        write_json(layout.funnel, numbers)
        if self.write_page is not None:
            self.write_page(layout, counted, numbers)
        return numbers


@dataclass(frozen=True)
class PairPlaces:
    """The origin of each pair: indices of its shard, of its row in the shard, and of its text in the row."""

    shards: tuple[str, ...]
    shard: NDArray[np.int64]
    row: NDArray[np.int64]
    text: NDArray[np.int64]


def pairs_of(layout: RunLayout, shards: Sequence[str]) -> tuple[Pairs, PairPlaces]:
    """Return all pairs that no rule has dropped so far, and the place that each comes from, in the order of shards."""
    pairs = np.fromiter(_pairs(layout, shards), _PAIR)
    columns = {name: np.ascontiguousarray(pairs[name]) for name in _PAIR.names or ()}
    places = PairPlaces(tuple(shards), columns.pop("shard"), columns.pop("row"), columns.pop("place"))
    phash = columns.pop("phash").view(np.uint64).reshape(-1, 4)
    return Pairs(**columns, phash=phash), places


def _pairs(layout: RunLayout, shards: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for shard, name in enumerate(shards):
        for number, row in enumerate(read_rows(layout.table("joined", name), "joined", _NARROW)):
            if row["fails"]:
                continue
            picture, page = int(row["sha256"][:16], 16), key_of(row["page"])
            host = key_of(host_of(row["page"] or row["address"]))
            for place, text in enumerate(row["texts"]):
                if not text["fails"]:
                    rank = 128 * is_title(text["text"], row["title"]) + 16 * KINDS.index(text["kind"]) + min(place, 15)
                    yield (picture, row["phash"], key_of(text["text"].casefold()), page, host, text["score"] or 0.0,
                           rank, shard, number, place)  # fmt: skip


def write_verdicts(
    layout: RunLayout, places: PairPlaces, verdict: NDArray[np.uint8], names: Sequence[str]
) -> list[Row]:
    """Write the table `decisions`, one file per shard. Returns the kept rows, sorted by image."""
    kept: list[Row] = []
    _remove_others(layout.decisions, {f"{name}.parquet" for name in names})
    ends = np.searchsorted(places.shard, np.arange(len(places.shards) + 1))
    for number, shard in enumerate(places.shards):
        rows = read_rows(layout.table("joined", shard), "joined")
        pairs = slice(int(ends[number]), int(ends[number + 1]))
        of_row: dict[int, list[tuple[int, int]]] = {}
        for row, text, what in zip(places.row[pairs], places.text[pairs], verdict[pairs], strict=True):
            of_row.setdefault(int(row), []).append((int(text), int(what)))
        for place, row in enumerate(rows):
            _decide(row, of_row.get(place, []))
        kept += [row for row in rows if row["kept"] is not None]
        write_rows(layout.decisions / f"{names[number]}.parquet", rows, "decisions")
    return sorted(kept, key=lambda row: (row["sha256"], row["page"], row["address"], row["place"]))


def _decide(row: Row, pairs: list[tuple[int, int]]) -> None:
    row["kept"] = row["score"] = None
    for text, what in pairs:
        if what == KEPT:
            row["kept"], row["score"] = text, row["texts"][text]["score"]
    if pairs and row["kept"] is None:
        reasons = {what for _, what in pairs}
        other = "host_pairs" if HOST in reasons else "top" if BELOW in reasons else "best_pair"
        row["fails"].append("common_text" if reasons == {COMMON} else other)
    row["dropped_by"] = min(row["fails"], key=ORDER.__getitem__, default=None)


def record(row: Row, by: str) -> dict[str, Any]:
    """Return a kept row as a line of JSON lines (docs/own-data-reference.md), with the origin of the image.

    `by`: what made the record, such as `diptych-mine/rules-4/no-scorer`.
    """
    text = row["texts"][row["kept"]]
    return {
        "image": f"pictures/{row['sha256'][:2]}/{row['sha256']}.{_ending(row)}", "captions": [text["text"]],
        "split": "train", "page": row["page"], "address": row["address"], "kind": text["kind"], "score": text["score"],
        "sha256": row["sha256"], "phash": row["phash"].hex(), "width": row["width"], "height": row["height"],
        "licence": row["licence"], "fetched": row["date"] or None, "by": by,
    }  # fmt: skip


def _ending(row: Row) -> str:
    return row["type"] or "jpg"


def write_records(layout: RunLayout, kept: Sequence[Row], by: str) -> None:
    """Write images, then records, so that no record refers to a missing image.

    Images without a record are removed last.
    """
    paths = [layout.picture(row["sha256"], _ending(row)) for row in kept]
    for row, path in zip(kept, paths, strict=True):
        if not path.exists() or path.stat().st_size != row["bytes"]:
            body = body_of(layout, row["blob"], row)
            if hashlib.sha256(body).hexdigest() != row["sha256"]:
                why = f"its image of {row['address'][:200]} is not the one that was measured"
                raise damaged(layout.blob(row["blob"]), why, layout.work())
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, body)
    names = set()
    for number, some in enumerate(pieces(kept, LINES)):
        name = f"{number:05d}.jsonl"
        names.add(name)
        layout.records.mkdir(parents=True, exist_ok=True)
        write_noted(layout.out, layout.records / name, lines_of(record(row, by) for row in some))
    _remove_others(layout.records, names)
    for path in {*layout.pictures.glob("*/*")}.difference(paths):
        if PICTURE.fullmatch(path.name):
            path.unlink()


def pieces(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    left = iter(rows)
    return iter(lambda: list(islice(left, size)), [])


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove files not in `names`.

    These are files of an earlier run with other settings, or incomplete files of a killed run.
    """
    sweep(folder)
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in names and RECORDS.fullmatch(path.name):
                path.unlink()


def write_times(layout: RunLayout, indexes: Iterable[str], kept: Iterable[Row]) -> None:
    """Write the time at which each kept image was fetched (UTC, ISO 8601).

    The times are in a separate file, because they differ between runs.
    """
    times: Times = {}
    for path in filter(Path.exists, map(layout.times, indexes)):
        times |= read_json(path, Times)
    addresses = sorted({row["address"] for row in kept} & times.keys())
    written = {one: datetime.fromtimestamp(times[one], UTC).isoformat(timespec="seconds") for one in addresses}
    write_json(layout.fetched, written)
