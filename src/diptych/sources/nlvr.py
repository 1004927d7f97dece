"""Statements that are true or false of pictures: NLVR2's pairs of pictures, and a like form for one picture."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from diptych.core import Record, Statement
from diptych.sources.parsing import Entry, Once, Pictures, key_of_name, picture_at, read_json_lines


@dataclass(frozen=True)
class Pair:
    """NLVR2's own: one statement about a left and a right picture."""

    left: Record
    right: Record
    statement: Statement


def read(lines: Path, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record a picture of lines {"identifier", "sentence", "label", "image"}: NLVR2's names, one picture."""
    once = Once("identifier")
    found: dict[str, list[Statement]] = defaultdict(list)
    first: dict[str, str] = {}
    for entry in read_json_lines(lines):
        name = entry["image"].text()
        first.setdefault(name, entry.where)
        found[name].append(_statement(entry, once))
    return [
        Record(key_of_name(name), split, picture_at(pictures, name, first[name]), statements=tuple(said))
        for name, said in found.items()
    ]


def read_pairs(lines: Path, pictures: Path | Pictures | None = None, split: str = "train") -> list[Pair]:
    """NLVR2's lines. `dev-850-0-1` speaks of `dev-850-0-img0.png` and `dev-850-0-img1.png`."""
    once = Once("identifier")
    pairs = []
    for entry in read_json_lines(lines):
        statement = _statement(entry, once)
        stem = statement.key.rpartition("-")[0]
        if not stem:
            entry["identifier"].refuse(f"`{statement.key}`", "one such as dev-850-0-1")
        left, right = (
            Record(f"{stem}-img{side}", split, picture_at(pictures, f"{stem}-img{side}.png", entry.where))
            for side in (0, 1)
        )
        pairs.append(Pair(left, right, statement))
    return pairs


def _statement(entry: Entry, once: Once) -> Statement:
    key = entry["identifier"].text()
    once.check(key, entry.where)
    return Statement(key, entry["sentence"].text(), entry["label"].flag())
