"""A folder belongs to the settings that it was begun with: the same settings resume it, others are refused."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.runtime.errors import RecipeError

LONGEST = 200  # characters of a value in an error


def differences(
    now: Mapping[str, Any], before: Mapping[str, Any], without: Collection[str] = (), prefix: str = ""
) -> list[str]:
    """`optimizer.lr: 0.5, was 0.002`: one line for each dotted key whose value differs, except those in `without`."""
    lines: list[str] = []
    for key in sorted({*now, *before}):
        new, old, place = now.get(key), before.get(key), f"{prefix}{key}"
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            lines += differences(new, old, without, f"{place}.")
        elif new != old and place not in without:
            lines.append(f"{place}: {_brief(new)}, was {_brief(old)}")
    return lines


def refuse_other(out: Path, what: str, lines: Sequence[str]) -> None:
    """Raise RecipeError if `lines`, the differences from the settings that `out` was begun with, are not empty."""
    if lines:
        raise RecipeError(
            "\n  ".join([f"{out} holds {what}:", *lines])
            + f"\npass the same options to resume it, choose another --out, or delete {out}"
        )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
