"""Report the funnel of `diptych mine` as a table on the terminal, and as an HTML page without scripts."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from diptych.runs.reports.environment import environment
from diptych.runtime.errors import DataError, counted
from diptych.runtime.files import write_atomically
from diptych.runtime.outputs import is_unedited, write_noted
from diptych.vision.decoder import shared_decoders
from diptych.vision.image_files import as_jpeg
from diptych_mine.checking import RunSettings, read_json
from diptych_mine.funnel import Funnel
from diptych_mine.keep.joining import AddressTable
from diptych_mine.layout import RunLayout
from diptych_mine.rules import RULES, TEXT_RULES
from diptych_mine.tables import Row

THUMBNAIL = 160


def summary(numbers: Mapping[str, Any], console: Console) -> None:
    """Print the counts of each rule. The dropped images and the kept images add up to all images."""

    def share(part: int, whole: int) -> str:
        return f"{100 * part / max(1, whole):.1f}%"

    table = Table("rule", "seen", "dropped", "share", "alone", "only", title="pictures")
    for name, line in numbers["rules"].items():
        if line["alone"]:
            seen, dropped, alone, only = (f"{line[key]:,}" for key in ("seen", "dropped", "alone", "only"))
            table.add_row(name, seen, dropped, share(line["dropped"], line["seen"]), alone, only)
    pictures, kept = numbers["pictures"], numbers["kept"]
    table.add_row("kept", f"{pictures:,}", f"{kept:,}", share(kept, pictures))
    console.print(table)
    judges = "; ".join(f"{name}: {what}" for name, what in numbers["about"]["judges"].items())
    words = f"mean words {numbers['mean_words']:.1f} (LAIT: {numbers['paper_mean_words']:.0f})"
    console.print(f"{words}; {judges}", highlight=False)


def why_empty(numbers: Mapping[str, Any]) -> str:
    """Return why a run has no records."""
    if numbers["pictures"]:
        drops = [f"{rule} {line['dropped']}" for rule, line in numbers["rules"].items() if line["dropped"]]
        remedy = "; leave out --offline" if "offline" in numbers["failures"] else ""
        return f"no record is left of {counted(numbers['pictures'], 'pictures')}; by rule: {', '.join(drops)}{remedy}"
    kinds = {key.removeprefix("records "): count for key, count in numbers["inputs"].items() if key[:8] == "records "}
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if kind != "bad") or "none that can be read"
    remedy = "WET files (text) have no pages; pass WARC" if "text" in kinds else "pass pages that have images"
    return f"no picture was found; records: {listed}; {remedy}"


def write_page(layout: RunLayout, funnel: Funnel, numbers: Mapping[str, Any]) -> Path:
    """Write OUT/report.html and OUT/card.md, and return the path of the report.

    The card describes the origin of the data, its licences, judges and limits. A card that the user changed is kept.
    Each file is written completely or not at all.
    """
    run = read_json(layout.settings, RunSettings)
    card = environment().get_template("mined_card.md.jinja").render(numbers=numbers, run=run)
    if not layout.card.exists() or is_unedited(layout.out, layout.card):
        write_noted(layout.out, layout.card, card.encode("utf-8", "replace"))
    page = environment().get_template("mined.html.jinja").render(
        numbers=numbers,
        rules=[(rule, numbers["rules"][rule.name], _shown(layout, funnel.rules[rule.name].examples)) for rule in RULES],
        texts=[(rule, numbers["texts"][rule.name], funnel.texts[rule.name].examples) for rule in TEXT_RULES],
        examples=_shown(layout, funnel.examples),
        histograms=[
            ("Words of a text that is kept", _bars(numbers["words"])),
            ("Shorter side of an image, pixels", _bars(numbers["shorter_side"])),
            ("Scores of texts", _bars(numbers["scores"])),
        ],
    )  # fmt: skip
    write_noted(layout.out, layout.report, page.encode("utf-8", "replace"))
    return layout.report


def _bars(counts: Mapping[str, int]) -> list[tuple[str, int, float]]:
    most = max(counts.values(), default=1) or 1
    return [(name, count, round(100 * count / most, 1)) for name, count in counts.items()]


def _shown(layout: RunLayout, rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "uri": _thumbnail(layout, row), "page": row["page"], "address": row["address"][:200],
            "text": row["texts"][row["kept"] or 0]["text"] if row["texts"] else "", "reason": row["reason"],
            "sides": f"{row['width']} × {row['height']}" if row["width"] else "",
        }
        for row in rows
    ]  # fmt: skip


def _thumbnail(layout: RunLayout, row: Row) -> str:
    """Return a thumbnail as a data URI; empty if the image was not decoded or was deleted."""
    if row["sha256"] is None or row["phash"] is None:
        return ""
    path = layout.picture(row["sha256"], row["type"] or "jpg")
    with suppress(DataError):
        return _small(path if path.exists() else AddressTable.body_of(layout, row["address"]))
    return ""


def _small(file: Path | bytes) -> str:
    decoders = shared_decoders()
    try:
        pixels = decoders.open(file) if isinstance(file, Path) else decoders.read(file, "the file")
    except DataError:
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(as_jpeg(pixels, THUMBNAIL, 80)).decode("ascii")


def write_sheet(path: Path, folder: Path, pairs: Sequence[Mapping[str, Any]]) -> None:
    """Write an HTML page with the images and texts of `pairs`, in their order.

    Paths of images are relative to `folder`.
    """
    shown = [{"uri": _small(folder / pair["image"]), **pair} for pair in pairs]
    page = environment().get_template("labels.html.jinja").render(shown=shown)
    write_atomically(path, page.encode("utf-8", "replace"))
