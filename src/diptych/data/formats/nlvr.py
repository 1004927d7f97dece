"""Statements that are true or false of pictures: NLVR2's pairs of pictures, and a like form for one picture."""

from collections import defaultdict
from pathlib import Path

from diptych.core import Record, Statement
from diptych.data.formats.parsing import Entry, Once, Pictures, key_of_name, picture_at, read_json_lines
from diptych.vision.archives import BESIDE


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
        Record(key_of_name(name), split, picture_at(pictures, name, first[name]), statements=tuple(statements))
        for name, statements in found.items()
    ]


def read_pairs(lines: Path, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record a pair of NLVR2's pictures, side by side as one, left and right as its statements say.

    `dev-850-0-1` speaks of `dev-850-0-img0.png` and `dev-850-0-img1.png`; those of `train` lie in a `directory`.
    """
    once = Once("identifier")
    found: dict[str, list[Statement]] = defaultdict(list)
    first: dict[str, Entry] = {}
    for entry in read_json_lines(lines):
        statement = _statement(entry, once)
        stem = statement.key.rpartition("-")[0]
        if not stem:
            entry["identifier"].refuse(f"`{statement.key}`", "one such as dev-850-0-1")
        first.setdefault(stem, entry)
        found[stem].append(statement)
    return [
        Record(stem, split, picture_at(pictures, _name(stem, first[stem]), first[stem]), statements=tuple(statements))
        for stem, statements in found.items()
    ]


def _name(stem: str, entry: Entry) -> str:
    directory = entry.get("directory")
    folder = "" if directory is None else f"{directory.integer()}/"
    return f"{folder}{stem}-img0.png{BESIDE}{stem}-img1.png"


def _statement(entry: Entry, once: Once) -> Statement:
    key = entry["identifier"].text()
    once.check(key, entry.where)
    return Statement(key, entry["sentence"].text(), entry["label"].flag())
