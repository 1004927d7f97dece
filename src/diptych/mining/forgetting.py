"""Pictures taken out of a run for good: their files, lines and verdicts; their hashes stay, so that none comes back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from diptych.errors import DataError
from diptych.files import text_of, write_atomically
from diptych.mining import funnel
from diptych.mining.layout import Layout
from diptych.mining.lists import Lists, lists_of
from diptych.mining.tables import Row, read_json, read_rows, write_json, write_rows

FILE = "forgotten.txt"


def forget(out: Path, lists: Sequence[Path]) -> int:
    """How many pictures went. Their bytes in `work` are overwritten too."""
    layout = Layout(out)
    if not layout.funnel.exists():
        raise DataError(f"no finished run in {out}; nothing there to forget")
    wanted = lists_of(lists, 4)
    gone: set[str] = set()
    lines = _lines(wanted)
    tables = {path: read_rows(path) for path in sorted(layout.decisions.glob("*.parquet"))}
    for rows in tables.values():
        for row in rows:
            if row["sha256"] is not None and _meant(row, wanted):
                gone.add(row["sha256"])
                lines |= {row["sha256"], *([f"{row['dhash']:016x}"] if row["dhash"] is not None else [])}
    _remember(layout, lines)  # first, so that a kill here loses nothing
    for path, rows in tables.items():
        kept = [row for row in rows if row["sha256"] not in gone and not _meant(row, wanted)]
        if len(kept) < len(rows):
            write_rows(path, kept, "decisions")
    _records(layout, gone)
    for path in layout.pictures.glob("*/*"):
        if path.stem in gone:
            path.unlink()
    _bodies(layout, gone)
    before = read_json(layout.funnel)
    write_json(layout.funnel, funnel.of(layout).as_json(before["inputs"], before["about"]))
    return len(gone)


def _meant(row: Row, lists: Lists) -> bool:
    """By its own address or its page's, by their hosts, or by its hashes."""
    if lists.refuse(row["address"]) or lists.refuse(row["page"]):
        return True
    return row["sha256"] is not None and lists.refuse_picture(row["sha256"], row["dhash"])


def _lines(lists: Lists) -> set[str]:
    return {*lists.hosts, *lists.addresses, *lists.sha256, *(f"{one:016x}" for one in lists.dhashes)}


def _remember(layout: Layout, lines: set[str]) -> None:
    path = layout.forgotten / FILE
    before = set(text_of(path).splitlines()) if path.exists() else set()
    layout.forgotten.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{line}\n" for line in sorted(before | lines)).encode())


def _records(layout: Layout, gone: set[str]) -> None:
    for path in sorted(layout.records.glob("*.jsonl")):
        lines = text_of(path).splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["sha256"] not in gone]
        if not kept:
            path.unlink()
        elif len(kept) < len(lines):
            write_atomically(path, "".join(kept).encode())


def _bodies(layout: Layout, gone: set[str]) -> None:
    """The bytes that were fetched are overwritten where they lie, so that `work` stays as it is otherwise."""
    for plan in layout.work("measured").glob("*.parquet"):
        index = read_json(layout.plan(plan.stem))["index"]
        blob = layout.blob(index)
        if not blob.exists():
            continue
        places = read_rows(layout.table("index", index), ["offset", "length"])
        with blob.open("r+b") as file:
            for row, place in zip(read_rows(plan, ["sha256"]), places, strict=True):
                if row["sha256"] in gone and place["length"]:
                    file.seek(place["offset"])
                    file.write(b"\0" * place["length"])
