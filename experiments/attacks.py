"""Make the table of `make attack` for docs/results.md: how often each kind of attempt was tried, and how often it broke
something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.tables import markdown

NAME = "attack"
# The tool's name for each kind of attempt, its title in the table, and what must hold after it.
KINDS = {
    "operation": ("killed before a disk operation", "repeated: the same bytes as without the kill"),
    "instant": ("killed at a random time", "repeated: the same bytes as without the kill"),
    "full disk": ("disk full from some operation on", "an error message; repeated: as if undisturbed"),
    "signal": ("SIGTERM or SIGINT, to the process or its group", "no traceback; repeated: as if undisturbed"),
    "one lost": ("one of two ranks killed", "the other reports it; repeated: as if undisturbed"),
    "flipped bit": ("bits flipped, then read by a command", "refused, or harmless"),
    "flipped bits": ("bits flipped, then opened from Python", "refused, or harmless"),
    "command line": ("bad inputs on the command line", "an error message, no incomplete output"),
    "pipes and devices": (
        "a pipe or a device for each path of the command line",
        "no command hangs; the path is unchanged",
    ),
    "fuzzed": ("damaged files and requests", "a Diptych error, or read"),
    "all combinations": ("outputs that another program or verb wrote", "refused; nothing changed"),
    "costs": ("images that cost far more than their size", "an error message or a result, in limited time and memory"),
    "environments": ("unusual environments", "an error message or a result; no input changed"),
    "12 steps": ("verbs and what users do between them, in any order", "nothing lost; as if undisturbed, or refused"),
    "finds": ("inputs that fuzzing found before", "a Diptych error, or read"),
    "20,000 steps": ("steps of training", "memory within 2%"),
}
HEAD = """## [The attack](results/attack.md)

`make attack` ([how](../CONTRIBUTING.md)) ran on one commit. The number of an attempt determines all that it does.
Attempts that broke an earlier commit have their own column. They were repeated by number after the repair, and none
broke anything. [SECURITY.md](../SECURITY.md) lists what is not protected, and why.
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
