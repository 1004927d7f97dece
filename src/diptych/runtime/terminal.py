"""Consoles for lines of text. Files and pipes get whole lines: no wrapping, colour or animation."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000  # columns without a terminal: no line is that long


def printable(text: str) -> str:
    """The text on one line and in any encoding: line breaks, control characters and lone surrogates are escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def columns(stream: TextIO) -> int | None:
    """The width for a stream; None for a terminal, which has its own."""
    return None if stream.isatty() else WIDE


def heading(console: Console, text: str) -> None:
    """Print a heading: a rule across a terminal, else only the text."""
    if console.is_terminal:
        console.rule(text, align="left")
    else:
        console.print(text)


def make_console(stderr: bool = True) -> Console:
    """A console, made nowhere else. Output is plain text: brackets in a path are not markup.

    The stream decides if it is a terminal; variables such as COLUMNS do not. FORCE_COLOR colours files and pipes too.
    """
    from rich.console import Console

    width = columns(sys.stderr if stderr else sys.stdout)
    colours = "standard" if os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR") else None
    no_terminal: dict[str, Any] = {"force_terminal": False, "force_interactive": False, "color_system": colours}
    settings = {} if width is None else {"width": width, **no_terminal}
    return Console(stderr=stderr, soft_wrap=True, markup=False, emoji=False, highlight=False, **settings)
