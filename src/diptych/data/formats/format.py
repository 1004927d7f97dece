"""What a format of data is: a name, what its files are, how one is recognised, and how they are read."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from diptych.core import Record
from diptych.data.formats.parsing import Pictures, Skips, first_line, parsed_line, read_json
from diptych.data.formats.values import JsonValue
from diptych.runtime.errors import DataError

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
JSON = (".json", ".jsonl")


def drawn_split(key: str, seed: int) -> str:
    """By a hash of both, so that a picture keeps its split when others join it, on every machine."""
    place = int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:8], "big") / 2**64
    for name, share in SHARES.items():
        place -= share
        if place < 0:
            return name
    return "train"


@dataclass(frozen=True)
class Wanted:
    """How records are wanted: where their pictures lie, and what split those get whose data name none."""

    pictures: Path | Pictures | None = None  # None: pictures are not looked for
    split: str | None = None  # None: one that the seed draws for each picture
    seed: int = 0
    skips: Skips = field(default_factory=Skips)  # counts what teaches nothing

    def split_of(self, key: str) -> str:
        return self.split or drawn_split(key, self.seed)

    def splitting(self, records: Sequence[Record]) -> list[Record]:
        """Of files that name no split."""
        return [replace(record, split=self.split_of(record.key)) for record in records]


@dataclass(frozen=True)
class Source:
    """A file or folder, looked into as far as it takes to know what it is."""

    path: Path

    @cached_property
    def is_lines(self) -> bool:
        """Whether it is one JSON value a line, as some files named .json are."""
        if self.path.suffix.lower() not in JSON or not self.path.is_file():
            return False
        line, more = first_line(self.path)
        return self.path.suffix.lower() == ".jsonl" or (more and line.startswith("{") and line.endswith("}"))

    @cached_property
    def json(self) -> JsonValue:
        """All of a JSON file, which is read once; of JSON lines the first."""
        return parsed_line(self.path) if self.is_lines else read_json(self.path)

    @cached_property
    def endings(self) -> set[str]:
        """Of the files of a folder, in lower case."""
        return {one.suffix.lower() for one in self.path.iterdir()} if self.path.is_dir() else set()

    def has(self, *names: str, ending: str = ".json") -> bool:
        """Whether it is a JSON object with these names; for `.jsonl`, whether its first line is one."""
        if self.path.suffix.lower() not in JSON or not self.path.is_file() or self.is_lines != (ending == ".jsonl"):
            return False
        try:
            value = self.json.value
        except DataError:
            if self.is_lines:  # what is wrong with a line, the reader of lines says better
                return False
            raise
        return isinstance(value, dict) and set(names) <= set(value)

    def values_have(self, *names: str) -> bool:
        """Whether it is a JSON object whose first value is one with these names."""
        if not self.has() or not self.json.value:
            return False
        first = next(iter(self.json.value.values()))
        return isinstance(first, dict) and set(names) <= set(first)

    def first_has(self, name: str, list_of: str = "") -> bool:
        """Whether the first value of the list in a JSON file, or of the list in its object, has this name."""
        if self.path.suffix.lower() != ".json" or not self.path.is_file() or self.is_lines:
            return False
        found = self.json.value
        found = found.get(list_of) if list_of and isinstance(found, dict) else found
        return isinstance(found, list) and bool(found) and isinstance(found[0], dict) and name in found[0]


@dataclass(frozen=True)
class Format:
    """One line of `FORMATS`."""

    what: str  # for people, such as "a COCO captions .json"
    fits: Callable[[Source], bool]  # whether the first of its files is of this format
    read: Callable[..., list[Record]]  # (wanted: Wanted, *files: Source), in the order of `files`
    files: tuple[str, ...] = ("file",)  # what each file holds, for a manifest
    least: int = 1  # how many of them there must be


def one_of(formats: dict[str, Format], source: Source) -> tuple[str, Format] | None:
    """The first format that fits, with its name."""
    return next(((name, one) for name, one in formats.items() if one.fits(source)), None)


def not_known(source: Source, forms: str) -> DataError:
    found = ""
    if source.has(ending=source.path.suffix.lower()):
        names = list(source.json.value)
        found = f", an object with {', '.join(f'`{name}`' for name in names[:8]) or 'nothing'}"
    return DataError(f"{source.path}{found} is no data that Diptych reads; wanted {forms}")
