"""Remove images from a run permanently: their files, records and verdicts, and their thumbnails in the report.

Their hashes are kept, so that later runs in the same folder refuse them.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych.runtime.outputs import is_unedited, write_noted
from diptych.vision.fingerprints import NEAR
from diptych_mine import funnel
from diptych_mine.checking import FunnelInputs, Measured, Object, read_json
from diptych_mine.layout import RunLayout
from diptych_mine.lists import Hashes, Lists, lists_of
from diptych_mine.report import write_page
from diptych_mine.tables import Row, check_same_rows, read_table, write_json, write_rows

FILE = "forgotten.txt"


def forget(out: Path, lists: Sequence[Path]) -> int:
    """Remove the images on these lists, and return their number.

    Copies (`Hashes`) are removed with them. Their bytes in the folder `work` are overwritten too. If the command is
    killed, it can be repeated. To allow this, hashes are written first, and the verdicts, which list the images, are
    changed last.
    """
    layout = RunLayout.finished(out)
    before = read_json(layout.funnel, FunnelInputs)
    wanted = lists_of(lists, NEAR)
    tables = {path: read_table(path, "decisions").to_pylist() for path in sorted(layout.decisions.glob("*.parquet"))}
    there = [row for rows in tables.values() for row in rows if row["sha256"] is not None]
    listed = [row for row, held in zip(there, wanted.refused.hold(there), strict=True) if held or _on(wanted, row)]
    phashes = wanted.refused.phashes | {row["phash"] for row in listed if row["phash"] is not None}
    refused = Hashes(wanted.refused.sha256 | {row["sha256"] for row in listed}, phashes, NEAR)
    removed = [row for row, held in zip(there, refused.hold(there), strict=True) if held]
    gone = {row["sha256"] for row in removed}
    hashes = {*refused.sha256, *gone, *(f"phash:{one.hex()}" for one in phashes)}
    _remember(layout, {*wanted.hosts, *wanted.addresses, *hashes})
    forget_records(layout, gone)
    for path in layout.pictures.glob("*/*"):
        if path.stem in gone:
            path.unlink()
    erase(layout, refused)
    _forget_times(layout, {row["address"] for row in removed})
    for path, rows in tables.items():
        kept = [row for row in rows if row["sha256"] not in gone and not _on(wanted, row)]
        if len(kept) < len(rows):
            write_rows(path, kept, "decisions")
    counts = funnel.of(layout)
    numbers = counts.as_json(before.inputs, before.about.model_dump())
    write_json(layout.funnel, numbers)
    if layout.report.exists():
        write_page(layout, counts, numbers)
    return len(gone)


def _on(lists: Lists, row: Row) -> bool:
    """Return True if a list has the URL or host of the image, of its redirect or of its page."""
    return lists.refuse(row["address"], row["final"], row["page"])


def _remember(layout: RunLayout, lines: set[str]) -> None:
    path = layout.forgotten / FILE
    before = set(filter(None, text_of(path).split("\n"))) if path.exists() else set()
    layout.forgotten.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{line}\n" for line in sorted(before | lines)).encode())


def forget_records(layout: RunLayout, gone: set[str]) -> None:
    for path in sorted(layout.records.glob("*.jsonl")):
        remedy = "repeat `diptych mine run`: it writes the records without the forgotten images"
        with explained(DataError, f"{path} is not a file of records", remedy):
            # splitlines() would also split a line at U+2028.
            lines = [f"{line}\n" for line in text_of(path).split("\n") if line]
            kept = [line for line in lines if parse_json(line)["sha256"] not in gone]
        if not kept:
            path.unlink()
        elif len(kept) < len(lines):
            write = partial(write_noted, layout.out) if is_unedited(layout.out, path) else write_atomically
            write(path, "".join(kept).encode())


def erase(layout: RunLayout, refused: Hashes) -> None:
    """Overwrite the bytes of these images in the folder `work`, in place, and remove fetches that are not complete.

    An image that was not measured yet is only known by its SHA-256.
    """
    for path in (one for kind in ("partial", "journal.json") for one in layout.work("index").glob(f"*.{kind}")):
        path.unlink()
    measured = {layout.table("index", read_json(layout.plan(path.stem), Measured).index): path
                for path in layout.work("measured").glob("*.parquet")}  # fmt: skip
    for path in layout.work("index").glob("*.parquet"):
        blob, places = layout.blob(path.stem), read_table(path, "index", ["offset", "length"])
        if not blob.exists():
            continue
        hashes = None
        if path in measured:
            hashes = read_table(measured[path], "measured", ["sha256", "phash"])
            check_same_rows(places, hashes, path)
        with blob.open("r+b") as file:
            _erase(file, blob.stat().st_size, places.to_pylist(), hashes and hashes.to_pylist(), refused)


def _erase(file: BinaryIO, size: int, places: list[Row], hashes: list[Row] | None, refused: Hashes) -> None:
    spans = [(place["offset"], min(place["length"], size - place["offset"])) for place in places]
    whole = [(start, length) if 0 <= start < size and length > 0 else (0, 0) for start, length in spans]
    known = hashes or [{"sha256": sha256(_read(file, *span)).hexdigest(), "phash": None} for span in whole]
    for (start, length), held in zip(whole, refused.hold(known), strict=True):
        if held:
            file.seek(start)
            file.write(b"\0" * length)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def _forget_times(layout: RunLayout, addresses: set[str]) -> None:
    for path in (layout.fetched, *layout.work("index").glob("*.times.json")):
        times = read_json(path, Object) if path.exists() else {}
        if times.keys() & addresses:
            write_json(path, {one: time for one, time in times.items() if one not in addresses})
