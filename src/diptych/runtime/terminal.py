"""Consoles for lines of text. In files and pipes, lines have no wrapping, colour or animation."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000  # width in characters if the output is not a terminal, so that no line is wrapped


def printable(text: str) -> str:
    """Return a text as one line that any encoding can print.

    Line breaks, control characters and lone surrogates are escaped.
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def begin(message: str) -> None:
    """Print what a command does first, such as `opening runs/captions`, before imports that take seconds."""
    print(printable(message), file=sys.stderr, flush=True)


def columns(stream: TextIO) -> int | None:
    """Return the width for a stream, or None for a terminal, which has its own width."""
    return None if stream.isatty() else WIDE


def heading(console: Console, text: str) -> None:
    """Print a heading: on a terminal with a horizontal rule, elsewhere only the text."""
    if console.is_terminal:
        console.rule(text, align="left")
    else:
        console.print(text)


def make_console(stderr: bool = True) -> Console:
    """Return a rich console for plain text, in which brackets are not markup. Consoles are created only here.

    Only the stream decides if it is a terminal; variables such as COLUMNS do not. With FORCE_COLOR, files and pipes
    have colours too.
    """
    from rich.console import Console

    width = columns(sys.stderr if stderr else sys.stdout)
    colours = "standard" if os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR") else None
    no_terminal: dict[str, Any] = {"force_terminal": False, "force_interactive": False, "color_system": colours}
    settings = {} if width is None else {"width": width, **no_terminal}
    return Console(stderr=stderr, soft_wrap=True, markup=False, emoji=False, highlight=False, **settings)
