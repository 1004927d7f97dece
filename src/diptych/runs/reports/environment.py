"""The jinja2 environment of report pages. It escapes all text and removes Unicode marks of text direction."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

# Unicode marks that change the direction of text, and control characters that XML and HTML forbid.
TURNING = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(9), *range(14, 32), *range(0x7F, 0xA0)])


def environment() -> Environment:
    """Return the jinja2 environment for the templates of reports."""
    return Environment(
        loader=PackageLoader("diptych.runs.reports"), autoescape=True, undefined=StrictUndefined, finalize=_harmless,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _harmless(value: Any) -> Any:
    """Remove marks of text direction, with which a caption could reverse the text next to it."""
    return value.translate(TURNING) if type(value) is str else value
