"""Make the table of `make attack` for docs/results.md: how often each kind of attempt was tried, and how often it broke
something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.tables import markdown

NAME = "attack"
# The tool's name for each kind of attempt, its title in the table, and what must hold after it.
KINDS = {
    "operation": ("killed before a disk operation", "after repeating, the same bytes as without the kill"),
    "instant": ("killed at a random time", "after repeating, the same bytes as without the kill"),
    "full disk": ("disk full from an operation on", "an error message; after repeating, as if undisturbed"),
    "signal": ("SIGTERM or SIGINT, to the process or its group", "no traceback; after repeating, as if undisturbed"),
    "one lost": ("one of two ranks killed", "the other reports it; after repeating, as if undisturbed"),
    "flipped bit": ("bits flipped, then read by a command", "an error message, or the same result"),
    "flipped bits": ("bits flipped, then opened from Python", "an error message, or the same result"),
    "command line": ("bad inputs on the command line", "an error message, no incomplete output"),
    "pipes and devices": (
        "a pipe or a device for each path of the command line",
        "no command hangs; the path is unchanged",
    ),
    "fuzzed": ("damaged files and requests", "read, or a Diptych error"),
    "all combinations": ("outputs that another program or verb wrote", "an error message; nothing changed"),
    "costs": ("images that cost far more than their size", "an error message or a result, in limited time and memory"),
    "environments": ("unusual environments", "an error message or a result; no input changed"),
    "12 steps": (
        "verbs and what users do between them, in any order",
        "nothing lost; an error, or as if undisturbed",
    ),
    "changed inputs": (
        "an input of a command changed, then the same command",
        "an error message, or the result of a first run on the new input",
    ),
    "finds": ("inputs that fuzzing found before", "read, or a Diptych error"),
    "20,000 steps": ("steps of training", "memory within 2%"),
}
HEAD = """## [The attack](results/attack.md)

`make attack` ([how](../CONTRIBUTING.md)) kills commands while they run, and passes damaged files to them. All attempts
of the table ran on one commit, except those with changed inputs (2026-11-28). Each has a number, which is the seed of
its random choices. One column counts attempts that broke an earlier commit: after the repair, the same numbers were run
again, and none broke anything.
[SECURITY.md](../SECURITY.md) lists what is not protected, and why.
"""


def section(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the Markdown lines of the section. Each kind of attempt has one row, summed over all verbs and readers."""
    rows = []
    for kind, (what, held) in KINDS.items():
        if found := _of(figures, kind):
            mended = sum(len(row.get("mended", ())) for row in found)
            rows.append((what, f"{len(found)}", f"{_tried(found):,}", f"{mended}", f"{_broken(found)}", held))
    yield HEAD
    yield from markdown(("what", "verbs or readers", "tried", "broke before, repaired", "broken", "criterion"), rows)
    yield ""


def _of(figures: Mapping[str, Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [row for name, row in figures.items() if name.rpartition(": ")[2] == kind and row["tried"]]


def _tried(rows: list[Mapping[str, Any]]) -> int:
    return sum(row["tried"] * row.get("each", 1) for row in rows)


def _broken(rows: list[Mapping[str, Any]]) -> int:
    return sum(len(row["broken"]) for row in rows)
