"""Texts about the files of a public data set in a folder, and the records of a manifest."""

from collections import Counter
from pathlib import Path

from rich.console import Console

from diptych.data.formats.parsing import Skips
from diptych.data.formats.public import PublicLayout, write_manifest
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError


def describe_folder(name: str, root: Path) -> str:
    """List the files of a set that are in a folder, and those that are missing."""
    layout = PublicLayout.of(name, root)
    lines = [f"there    {path}" for path in layout.there.values()]
    lines += [f"missing  {root / piece.line}" for piece in layout.missing]
    return "\n".join([*lines, f"to write a manifest of what is there: --out {name}.json"])


def write_set(name: str, root: Path, out: Path, console: Console, skip_bad: bool = False) -> str:
    """Write the manifest of a set and return its counts. It is read once, and deleted if it cannot be read."""
    layout = PublicLayout.of(name, root)
    for piece in layout.missing:
        console.print(f"missing: {root / piece.line}")
    was_there, skips = out.exists(), Skips(skip_bad)
    write_manifest(layout.manifest(out), out)
    try:
        records = read(out, need_pictures=False, skips=skips)
    except DataError:
        if not was_there:
            out.unlink()
        raise
    splits = Counter(record.split for record in records)
    there = sum(record.image is not None for record in records)
    lines = [f"{out}: {', '.join(f'{split} {count:,}' for split, count in splits.items())}"]
    lines.append(f"{there:,} of {len(records):,} pictures are there")
    words: Counter[str] = Counter()
    for record in records:
        words.update({name: len(items) for name, items in record.words().items()})
    lines.append(", ".join(f"{count:,} {what}" for what, count in words.items() if count))
    if skips.counts:
        lines.append(f"left out: {skips}")
    return "\n".join(line for line in lines if line)
