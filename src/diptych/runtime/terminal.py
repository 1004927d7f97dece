"""Where lines for people go. A file or a pipe gets each line whole: nothing is wrapped, coloured or animated there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000  # columns, where nobody's window ends


def printable(text: str) -> str:
    """On one line, and in any encoding: what breaks lines, moves the cursor or is no character stands escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def columns(stream: TextIO) -> int | None:
    """None on a terminal, which knows its own width."""
    return None if stream.isatty() else WIDE


def heading(console: Console, text: str) -> None:
    """A line across a terminal; elsewhere the text alone."""
    if console.is_terminal:
        console.rule(text, align="left")
    else:
        console.print(text)


def make_console(stderr: bool = True) -> Console:
    """The only place that makes consoles. What is printed is text: brackets in a path are no markup.

    Whether it is a terminal is asked of the stream, and no variable such as FORCE_COLOR or COLUMNS says otherwise.
    """
    from rich.console import Console

    width = columns(sys.stderr if stderr else sys.stdout)
    return Console(
        stderr=stderr,
        width=width,
        force_terminal=None if width is None else False,
        force_interactive=None if width is None else False,
        color_system="auto" if width is None else None,
        soft_wrap=True,
        markup=False,
        emoji=False,
        highlight=False,
    )
