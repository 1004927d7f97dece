"""Compare the settings of a command with the settings saved in its output folder.

The work in the folder can be resumed only with the same settings.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.runtime.errors import RecipeError

LONGEST = 200  # an error message shows at most this number of characters of a value


def differences(
    now: Mapping[str, Any], before: Mapping[str, Any], without: Collection[str] = (), prefix: str = ""
) -> list[str]:
    """Return a line for each dotted key whose value differs, such as `optimizer.lr: 0.5, was 0.002`.

    Keys in `without` are skipped.
    """
    lines: list[str] = []
    for key in sorted({*now, *before}):
        new, old, place = now.get(key), before.get(key), f"{prefix}{key}"
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            lines += differences(new, old, without, f"{place}.")
        elif new != old and place not in without:
            lines.append(f"{place}: {_brief(new)}, was {_brief(old)}")
    return lines


def refuse_other(out: Path, what: str, lines: Sequence[str]) -> None:
    """Raise RecipeError if `lines` is not empty.

    `lines`: differences between the settings now and those saved in the folder `out`. `what`: the content of the
    folder, for the error.
    """
    if lines:
        raise RecipeError(
            "\n  ".join([f"{out} holds {what}:", *lines])
            + f"\npass the same options to resume it, choose another --out, or delete {out}"
        )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
