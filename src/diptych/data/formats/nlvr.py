"""Statements that are true or false of pictures: NLVR2's pairs of pictures, and a like form for one picture."""

from collections import defaultdict
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record, Statement
from diptych.data.formats.parsing import Once, Pictures, key_of_name, picture_at, read_json_lines
from diptych.data.formats.values import Flag, Text, is_true
from diptych.vision.archives import BESIDE


class _Claim(Struct):
    identifier: Text
    sentence: Text
    label: Flag

    def statement(self) -> Statement:
        return Statement(self.identifier, self.sentence, is_true(self.label))


class _OnePicture(_Claim):
    image: Text


class _Pair(_Claim):
    directory: int | UnsetType = UNSET


def read(lines: Path, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record a picture of lines {"identifier", "sentence", "label", "image"}: NLVR2's names, one picture."""
    once = Once("identifier")
    found: dict[str, list[Statement]] = defaultdict(list)
    first: dict[str, str] = {}
    for value in read_json_lines(lines):
        line = value.read(_OnePicture)
        once.check(line.identifier, value.where())
        first.setdefault(line.image, value.where())
        found[line.image].append(line.statement())
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
    first: dict[str, tuple[str, str]] = {}
    for value in read_json_lines(lines):
        line = value.read(_Pair)
        once.check(line.identifier, value.where())
        stem = line.identifier.rpartition("-")[0]
        if not stem:
            value.refuse(f"`{line.identifier}`", "one such as dev-850-0-1", "identifier")
        folder = "" if line.directory is UNSET else f"{line.directory}/"
        first.setdefault(stem, (f"{folder}{stem}-img0.png{BESIDE}{stem}-img1.png", value.where()))
        found[stem].append(line.statement())
    return [
        Record(stem, split, picture_at(pictures, *first[stem]), statements=tuple(statements))
        for stem, statements in found.items()
    ]
