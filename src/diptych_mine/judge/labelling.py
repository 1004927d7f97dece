"""Draw pairs of image and text for people to label, evenly over the range of scores."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych_mine import funnel
from diptych_mine.layout import RunLayout
from diptych_mine.tables import lines_of

PARTS = 20  # scores are divided into this number of equal ranges


def sample(out: Path, count: int, lines: Path, seed: int = 0) -> list[dict[str, Any]]:
    """Write `count` pairs of a finished run to the file `lines`, the same number from each range of scores.

    Each pair has `"true": null`, to be filled in by a person. Labels that the file already has are kept, even of pairs
    that are not drawn again. Raises DataError if the run kept no image.
    """
    layout = RunLayout.finished(out)
    pairs = []
    for row in funnel.decisions(layout):
        if row["sha256"] is None or not (picture := layout.picture(row["sha256"], row["type"] or "jpg")).exists():
            continue
        image = Path(os.path.relpath(picture, lines.parent)).as_posix()
        for text in row["texts"]:
            if set(text["fails"]) <= {"kinds", "score"}:
                about = {key: row[key] for key in ("page", "title", "address")}
                pairs.append({"image": image, "statement": text["text"], "true": None, "kind": text["kind"],
                              "score": text["score"], **about})  # fmt: skip
    if not pairs:
        raise DataError(f"{out} kept no images, so there is nothing to label; run `diptych mine run` with other rules")
    drawn = _evenly(pairs, count, Random(seed))
    before = labels_in(lines)
    for pair in drawn:
        pair["true"] = before.pop((pair["image"], pair["statement"]), pair)["true"]
    drawn += [line for line in before.values() if line["true"] is not None]
    write_atomically(lines, lines_of(drawn))
    return drawn


def _evenly(pairs: Sequence[dict[str, Any]], count: int, rng: Random) -> list[dict[str, Any]]:
    parts: dict[int, list[dict[str, Any]]] = {}
    for pair in pairs:
        parts.setdefault(int((pair["score"] or 0.0) * PARTS), []).append(pair)
    for part in parts.values():
        rng.shuffle(part)
    drawn: list[dict[str, Any]] = []
    while len(drawn) < count and any(parts.values()):
        drawn += [part.pop() for _, part in sorted(parts.items()) if part]
    drawn = drawn[:count]
    rng.shuffle(drawn)
    return drawn


def labels_in(lines: Path) -> dict[tuple[str, str], dict[str, Any]]:
    if not lines.exists():
        return {}
    with explained(DataError, f"{lines} exists and is not a label file", "pass another --out"):
        labels = [parse_json(line) for line in text_of(lines).split("\n") if line]
        return {(one["image"], one["statement"]): one | {"true": one["true"]} for one in labels}
