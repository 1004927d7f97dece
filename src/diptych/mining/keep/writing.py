"""The last stage on disk: verdicts for every picture that came in, records and pictures of those that are kept."""

import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.mining.keep.address_table import key_of
from diptych.mining.keep.keep import COMMON, HOST, KEPT, Pairs
from diptych.mining.layout import RunLayout
from diptych.mining.pages.addresses import host_of
from diptych.mining.pages.reading import body_of
from diptych.mining.pages.texts import KINDS
from diptych.mining.rules import VERSION, first
from diptych.mining.tables import Row, lines_of, read_rows, write_json, write_rows
from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of, sweep, write_atomically

LINES = 10_000  # of a file of records
IN_A_TAR = 1_000


@dataclass(frozen=True)
class KeptTexts:
    """Which text of which row is kept, by shard."""

    shards: tuple[str, ...]
    rows: NDArray[np.int64]  # of each pair: number of its row in its shard
    texts: NDArray[np.int64]  # of each pair: number of its text in its row
    starts: NDArray[np.int64]  # of each shard: where its pairs begin


def pairs_of(layout: RunLayout, shards: Sequence[str]) -> tuple[Pairs, KeptTexts]:
    """Narrow columns of all that is left, in the order of the shards."""
    columns: list[list[Any]] = [[] for _ in range(7)]
    rows: list[int] = []
    texts: list[int] = []
    starts = [0]
    for shard in shards:
        for number, row in enumerate(read_rows(layout.table("joined", shard), "joined", _NARROW)):
            if row["fails"]:
                continue
            same = (
                int(row["sha256"][:16], 16),
                row["dhash"],
                key_of(row["page"]),
                key_of(host_of(row["page"] or row["address"])),
            )
            for place, text in enumerate(row["texts"]):
                if not text["fails"]:
                    values = (same[0], same[1], key_of(text["text"].casefold()), same[2], same[3], text["score"] or 0.0,
                            KINDS.index(text["kind"]))  # fmt: skip
                    for column, value in zip(columns, values, strict=True):
                        column.append(value)
                    rows.append(number)
                    texts.append(place)
        starts.append(len(rows))
    kinds = (np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.float32, np.uint8)
    pairs = Pairs(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
    return pairs, KeptTexts(
        tuple(shards), np.array(rows, np.int64), np.array(texts, np.int64), np.array(starts, np.int64)
    )


_NARROW = ("page", "address", "texts", "fails", "sha256", "dhash")


def write_verdicts(layout: RunLayout, chosen: KeptTexts, verdict: NDArray[np.uint8], names: Sequence[str]) -> list[Row]:
    """Writes `decisions`, a file a shard of pages; hands back what is kept, in the order of its pictures."""
    kept: list[Row] = []
    _only(layout.decisions, {f"{name}.parquet" for name in names})
    for number, shard in enumerate(chosen.shards):
        rows = read_rows(layout.table("joined", shard), "joined")
        pairs = slice(int(chosen.starts[number]), int(chosen.starts[number + 1]))
        of_row: dict[int, list[tuple[int, int]]] = {}
        for row, text, what in zip(chosen.rows[pairs], chosen.texts[pairs], verdict[pairs], strict=True):
            of_row.setdefault(int(row), []).append((int(text), int(what)))
        for place, row in enumerate(rows):
            _decide(row, of_row.get(place, []))
            if row["kept"] is not None:
                kept.append(row)
        write_rows(layout.decisions / f"{names[number]}.parquet", rows, "decisions")
    return sorted(kept, key=lambda row: (row["sha256"], row["page"], row["address"], row["place"]))


def _decide(row: Row, pairs: list[tuple[int, int]]) -> None:
    row["kept"] = row["score"] = None
    for text, what in pairs:
        if what == KEPT:
            row["kept"], row["score"] = text, row["texts"][text]["score"]
    if pairs and row["kept"] is None:
        reasons = {what for _, what in pairs}
        row["fails"].append("common_text" if reasons == {COMMON} else "host_pairs" if HOST in reasons else "best_pair")
    row["dropped_by"] = first(row["fails"])


def record(row: Row, by: str) -> dict[str, Any]:
    """A line in the form of docs/your-own-data.md, with where it is from beside."""
    text = row["texts"][row["kept"]]
    ending = row["type"] or "jpg"
    return {
        "image": f"pictures/{row['sha256'][:2]}/{row['sha256']}.{ending}", "captions": [text["text"]], "split": "train",
        "page": row["page"], "address": row["address"], "kind": text["kind"], "score": text["score"],
        "sha256": row["sha256"], "dhash": f"{row['dhash']:016x}", "width": row["width"], "height": row["height"],
        "licence": row["licence"], "fetched": row["date"] or None, "by": by,
    }  # fmt: skip


def write_records(layout: RunLayout, kept: Sequence[Row], by: str) -> None:
    """Pictures first, so that no line ever names one that is not there; then lines; then what no line names goes."""
    for row in kept:
        path = layout.picture(row["sha256"], row["type"] or "jpg")
        if not path.exists() or path.stat().st_size != row["bytes"]:
            body = body_of(layout, row["blob"], row)
            if hashlib.sha256(body).hexdigest() != row["sha256"]:
                raise DataError(
                    f"{layout.blob(row['blob'])} holds another picture than was measured ({row['address'][:200]}); "
                    f"take {layout.work()} away and give the same command again"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, body)
    names = set()
    for number, some in enumerate(_pieces(kept, LINES)):
        name = f"{number:05d}.jsonl"
        names.add(name)
        layout.records.mkdir(parents=True, exist_ok=True)
        write_atomically(layout.records / name, lines_of(record(row, by) for row in some))
    _only(layout.records, names)
    wanted = {layout.picture(row["sha256"], row["type"] or "jpg") for row in kept}
    for path in layout.pictures.glob("*/*"):
        if path not in wanted:
            path.unlink()


def write_tars(folder: Path, layout: RunLayout, kept: Sequence[Row], by: str) -> None:
    """As img2dataset writes them: 00000.tar with 000000000.jpg, .txt and .json."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, some in enumerate(_pieces(kept, IN_A_TAR)):
        beside = folder / f".{number:05d}.{os.getpid()}.partial"
        with tarfile.open(beside, "w", format=tarfile.USTAR_FORMAT) as tar:
            for place, row in enumerate(some):
                key = f"{number:05d}{place:04d}"
                line = record(row, by)
                path = layout.picture(row["sha256"], row["type"] or "jpg")
                about = {"key": key, "caption": line["captions"][0], "url": row["address"], "status": "success",
                         "sha256": row["sha256"], **{name: line[name] for name in _TOLD}}  # fmt: skip
                _member(tar, f"{key}.{row['type'] or 'jpg'}", bytes_of(path))
                _member(tar, f"{key}.txt", line["captions"][0].encode())
                _member(tar, f"{key}.json", json.dumps(about, ensure_ascii=False).encode())
        os.replace(beside, folder / f"{number:05d}.tar")


_TOLD = ("width", "height", "page", "licence", "score", "by")


def _member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, BytesIO(content))


def _pieces(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    left = iter(rows)
    return iter(lambda: list(islice(left, size)), [])


def _only(folder: Path, names: set[str]) -> None:
    """What an earlier run with other settings left is taken away, and what a kill left half written."""
    sweep(folder)
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in names and not path.name.startswith("."):
                path.unlink()


def made_by(scorer: str | None) -> str:
    return f"diptych-mine/rules-{VERSION}/{scorer or 'no-scorer'}"


def write_times(layout: RunLayout, times: dict[str, str], kept: Sequence[Row]) -> None:
    """When each kept picture was fetched: in a file of its own, since it differs from run to run."""
    fetched = {row["address"]: times[row["address"]] for row in kept if row["address"] in times}
    write_json(layout.out / "fetched.json", dict(sorted(fetched.items())))
