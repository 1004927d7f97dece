"""Write the manifest of a public data set, and count its records."""

from collections import Counter
from pathlib import Path

from rich.console import Console

from diptych.data.formats.parsing import Skips
from diptych.data.formats.public import PublicLayout, write_manifest
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError, counted


def write_set(name: str, root: Path, out: Path, console: Console, skip_bad: bool = False) -> str:
    """Write the manifest of a public data set, and return a text with the number of its records.

    The files are in `root`. All data is read as a test; if this fails, the manifest is deleted.
    """
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
    lines.append(f"{there:,} of {len(records):,} images exist")
    words: Counter[str] = Counter()
    for record in records:
        words.update({name: len(items) for name, items in record.words().items()})
    lines.append(", ".join(counted(count, what) for what, count in words.items() if count))
    if skips.counts:
        lines.append(f"left out: {skips}")
    return "\n".join(line for line in lines if line)
