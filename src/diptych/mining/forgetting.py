"""Pictures taken out of a run for good: their files, lines and verdicts; their hashes stay, so that none comes back."""

from collections.abc import Sequence
from pathlib import Path

from diptych.mining import funnel
from diptych.mining.checking import Counted, Measured, read_json
from diptych.mining.layout import RunLayout
from diptych.mining.lists import Lists, lists_of
from diptych.mining.tables import Row, check_beside, read_table, write_json, write_rows
from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, text_of, write_atomically

FILE = "forgotten.txt"


def forget(out: Path, lists: Sequence[Path]) -> int:
    """How many pictures went. Their bytes in `work` are overwritten too."""
    layout = RunLayout.finished(out)
    before = read_json(layout.funnel, Counted)
    wanted = lists_of(lists, 4)
    gone: set[str] = set()
    lines = _lines(wanted)
    tables = {path: read_table(path, "decisions").to_pylist() for path in sorted(layout.decisions.glob("*.parquet"))}
    for rows in tables.values():
        for row in rows:
            if row["sha256"] is not None and _meant(row, wanted):
                gone.add(row["sha256"])
                lines |= {row["sha256"], *([f"{row['dhash']:016x}"] if row["dhash"] is not None else [])}
    _remember(layout, lines)  # first, so that a kill here loses nothing
    _records(layout, gone)
    for path in layout.pictures.glob("*/*"):
        if path.stem in gone:
            path.unlink()
    _bodies(layout, gone)
    for path, rows in tables.items():  # last, since they say what is to go: the same command after a kill goes on
        kept = [row for row in rows if row["sha256"] not in gone and not _meant(row, wanted)]
        if len(kept) < len(rows):
            write_rows(path, kept, "decisions")
    write_json(layout.funnel, funnel.of(layout).as_json(before.inputs, before.about.model_dump()))
    return len(gone)


def _meant(row: Row, lists: Lists) -> bool:
    """By its own address, where that led, or its page's, by their hosts, or by its hashes."""
    if lists.refuse_any(row["address"], row["final"], row["page"]):
        return True
    return row["sha256"] is not None and lists.refuse_picture(row["sha256"], row["dhash"])


def _lines(lists: Lists) -> set[str]:
    return {*lists.hosts, *lists.addresses, *lists.sha256, *(f"{one:016x}" for one in lists.dhashes)}


def _remember(layout: RunLayout, lines: set[str]) -> None:
    path = layout.forgotten / FILE
    before = set(text_of(path).splitlines()) if path.exists() else set()
    layout.forgotten.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{line}\n" for line in sorted(before | lines)).encode())


def _records(layout: RunLayout, gone: set[str]) -> None:
    for path in sorted(layout.records.glob("*.jsonl")):
        try:
            lines = text_of(path).splitlines(keepends=True)
            kept = [line for line in lines if parse_json(line)["sha256"] not in gone]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} holds something else than records ({error!r}); give its `diptych mine run` again, which "
                "leaves out what was forgotten"
            ) from error
        if not kept:
            path.unlink()
        elif len(kept) < len(lines):
            write_atomically(path, "".join(kept).encode())


def _bodies(layout: RunLayout, gone: set[str]) -> None:
    """The bytes that were fetched are overwritten where they lie, so that `work` stays as it is otherwise."""
    for path in layout.work("measured").glob("*.parquet"):
        index = read_json(layout.plan(path.stem), Measured).index
        blob = layout.blob(index)
        if not blob.exists():
            continue
        asked = read_table(layout.table("index", index), "index", ["offset", "length"])
        seen = read_table(path, "measured", ["sha256"])
        check_beside(asked, seen, path)
        size = blob.stat().st_size
        with blob.open("r+b") as file:
            for row, place in zip(seen.to_pylist(), asked.to_pylist(), strict=True):
                if row["sha256"] in gone and 0 <= place["offset"] < size:
                    file.seek(place["offset"])
                    file.write(b"\0" * min(place["length"], size - place["offset"]))
