"""Remove images from a run permanently: their files, records and verdicts, and their thumbnails in the report.

Their hashes are kept, so that later runs in the same folder refuse them.
"""

from collections.abc import Sequence
from pathlib import Path

from diptych.mining import funnel
from diptych.mining.checking import FunnelInputs, Measured, read_json
from diptych.mining.layout import RunLayout
from diptych.mining.lists import Lists, lists_of
from diptych.mining.report import REPORT, write_page
from diptych.mining.tables import Row, check_same_rows, read_table, write_json, write_rows
from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, text_of, write_atomically

FILE = "forgotten.txt"


def forget(out: Path, lists: Sequence[Path]) -> int:
    """Remove the images on these lists, and return their number.

    Their bytes in the folder `work` are overwritten too. If the command is killed, it can be repeated. To allow this,
    hashes are written first, and the verdicts, which list the images, are changed last.
    """
    layout = RunLayout.finished(out)
    before = read_json(layout.funnel, FunnelInputs)
    wanted = lists_of(lists, 4)
    tables = {path: read_table(path, "decisions").to_pylist() for path in sorted(layout.decisions.glob("*.parquet"))}
    listed = [row for rows in tables.values() for row in rows if row["sha256"] is not None and _on(wanted, row)]
    gone = {row["sha256"] for row in listed}
    dhashes = {*wanted.refused.dhashes, *(row["dhash"] for row in listed if row["dhash"] is not None)}
    hashes = {*wanted.refused.sha256, *gone, *(f"{one:016x}" for one in dhashes)}
    _remember(layout, {*wanted.hosts, *wanted.addresses, *hashes})
    forget_records(layout, gone)
    for path in layout.pictures.glob("*/*"):
        if path.stem in gone:
            path.unlink()
    _bodies(layout, gone)
    for path, rows in tables.items():
        kept = [row for row in rows if row["sha256"] not in gone and not _on(wanted, row)]
        if len(kept) < len(rows):
            write_rows(path, kept, "decisions")
    counts = funnel.of(layout)
    numbers = counts.as_json(before.inputs, before.about.model_dump())
    write_json(layout.funnel, numbers)
    if (layout.out / REPORT).exists():
        write_page(layout, counts, numbers)
    return len(gone)


def _on(lists: Lists, row: Row) -> bool:
    """Return True if a list has the image's hash, or the URL or host of the image, of its redirect or of its page."""
    if lists.refuse(row["address"], row["final"], row["page"]):
        return True
    return row["sha256"] is not None and lists.refused.hold(row["sha256"], row["dhash"])


def _remember(layout: RunLayout, lines: set[str]) -> None:
    path = layout.forgotten / FILE
    before = set(filter(None, text_of(path).split("\n"))) if path.exists() else set()
    layout.forgotten.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{line}\n" for line in sorted(before | lines)).encode())


def forget_records(layout: RunLayout, gone: set[str]) -> None:
    for path in sorted(layout.records.glob("*.jsonl")):
        try:
            # splitlines() would also split a line at U+2028.
            lines = [f"{line}\n" for line in text_of(path).split("\n") if line]
            kept = [line for line in lines if parse_json(line)["sha256"] not in gone]
        except (OSError, ValueError, KeyError, TypeError) as error:
            way_out = "repeat `diptych mine run`: it writes the records without the forgotten images"
            raise DataError(f"{path} is not a file of records ({error!r}); {way_out}") from error
        if not kept:
            path.unlink()
        elif len(kept) < len(lines):
            write_atomically(path, "".join(kept).encode())


def _bodies(layout: RunLayout, gone: set[str]) -> None:
    """Overwrite the bytes of removed images in place. Other bytes of the folder `work` are not changed."""
    for path in layout.work("measured").glob("*.parquet"):
        index = read_json(layout.plan(path.stem), Measured).index
        blob = layout.blob(index)
        if not blob.exists():
            continue
        places = read_table(layout.table("index", index), "index", ["offset", "length"])
        hashes = read_table(path, "measured", ["sha256"])
        check_same_rows(places, hashes, path)
        size = blob.stat().st_size
        with blob.open("r+b") as file:
            for row, place in zip(hashes.to_pylist(), places.to_pylist(), strict=True):
                if row["sha256"] in gone and 0 <= place["offset"] < size:
                    file.seek(place["offset"])
                    file.write(b"\0" * min(place["length"], size - place["offset"]))
