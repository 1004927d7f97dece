"""Save the settings of a command in its output folder, and compare them with those saved there.

The work in the folder can be resumed only with the same settings.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.runtime.errors import RecipeError
from diptych.runtime.files import saved_json, write_atomically
from diptych.runtime.outputs import Kind, claim

LONGEST = 200  # an error message shows at most this number of characters of a value


def claim_settings(
    out: Path, file: str, kind: Kind, settings: Mapping[str, Any], what: str, compared: Collection[str] | None = None
) -> None:
    """Claim the folder `out` for work with these settings, which are saved in its `file`.

    `what`: the work, for the error. `compared`: the settings that may not change (None: all). Raises RecipeError, with
    the differences, if the folder holds work with other settings, and OutputError like `claim`.
    """
    if (out / file).exists():
        now, before = (
            {key: value for key, value in one.items() if compared is None or key in compared}
            for one in (settings, saved_json(out / file, dict))
        )
        refuse_other(out, what, differences(now, before))
    claim(out, kind)
    write_atomically(out / file, json.dumps(settings, indent=1).encode())


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
