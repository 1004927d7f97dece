"""The table of the attack (`make attack`) for docs/results.md: what was tried, by kind, and what did not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.tables import markdown

NAME = "attack"
# What an attempt is called by the tool, and its text in the table: its own row, and what holding means.
KINDS = {
    "operation": ("killed before an operation of the disk", "given again: byte for byte as undisturbed"),
    "instant": ("killed at an instant", "given again: byte for byte as undisturbed"),
    "full disk": ("no room from an operation on", "a sentence; given again: as undisturbed"),
    "signal": ("SIGTERM or SIGINT, to the process or its group", "no traceback; given again: as undisturbed"),
    "one lost": ("one of two ranks killed", "the other reports it; given again: as undisturbed"),
    "flipped bit": ("bits flipped, read by a command", "refused, or harmless"),
    "flipped bits": ("bits flipped, opened from Python", "refused, or harmless"),
    "command line": ("bad inputs on the command line", "a sentence, nothing half written"),
    "pipes and devices": (
        "a pipe or a device for each path of the command line",
        "no command hangs; the path is unchanged",
    ),
    "fuzzed": ("damaged files and requests", "an error of Diptych's, or read"),
    "all combinations": ("outputs that are not the verb's own", "refused; nothing changed"),
    "costs": ("images that cost far more than their size", "a sentence or a result, in bounded time and memory"),
    "environments": ("odd environments", "a sentence or a result; no input changed"),
    "12 steps": ("verbs and what users do between them, in any order", "nothing lost; as undisturbed, or refused"),
    "finds": ("what fuzzing found before", "an error of Diptych's, or read"),
    "20,000 steps": ("steps of training", "memory within 2%"),
}
HEAD = """## [The attack](results/attack.md)

`make attack` ([how](../CONTRIBUTING.md)) ran on one commit. The number of an attempt determines all that it does.
Attempts that broke an earlier commit have their own column. They were repeated by number after the repair, and none
broke anything. [SECURITY.md](../SECURITY.md) lists what is not protected, and why.
"""


def section(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Of the figures that `tests.attack` keeps: a row a kind, over all verbs and readers."""
    rows = []
    for kind, (what, held) in KINDS.items():
        if found := _of(figures, kind):
            mended = sum(len(row.get("mended", ())) for row in found)
            rows.append((what, f"{len(found)}", f"{_tried(found):,}", f"{mended}", f"{_broken(found)}", held))
    yield HEAD
    yield from markdown(("what", "verbs or readers", "tried", "broke before, mended", "broken", "held means"), rows)
    yield ""


def _of(figures: Mapping[str, Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [row for name, row in figures.items() if name.rpartition(": ")[2] == kind and row["tried"]]


def _tried(rows: list[Mapping[str, Any]]) -> int:
    return sum(row["tried"] * row.get("each", 1) for row in rows)


def _broken(rows: list[Mapping[str, Any]]) -> int:
    return sum(len(row["broken"]) for row in rows)
