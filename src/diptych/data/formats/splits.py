"""The split of an image: the one that an entry names, else the one that the caller gave, else a random one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from diptych.data.formats.parsing import Skips
from diptych.data.formats.values import JsonValue

if TYPE_CHECKING:
    from diptych.core import Record

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
SYNONYMS = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}
SCORED = ("val", "dev", "test")  # a split is held out if its name begins with one of these
JOINED = {"restval": "train"}  # {part of a split: split}; restval: images of COCO's val set on which papers train
# Finds a split in a file's name, such as train in train2017.
NAMED = re.compile(rf"(?<![a-z])({'|'.join((*SHARES, *SYNONYMS))})(?=\d*(?![a-z]))", re.I)
_NUMBER = re.compile(r"[-_. ]?\d+$")  # the number at the end of a folder's name, such as 2017 in test2017


@dataclass
class Splits:
    """The splits of the images of a file. Whatever is unusual about them is counted in `skips`.

    A record without a split, "", is of no split yet: `fill` gives it one.
    """

    given: str | None  # the split of all images for which no entry names one
    seed: int  # of random splits
    skips: Skips
    named: dict[str, str] = field(default_factory=dict)  # {image: split of its entries}
    drawn: set[str] = field(default_factory=set)  # keys of the records with a random split

    def of_entry(self, split: str | None, where: str) -> str | None:
        """Return the split that an entry of a file names, else the given split (or None)."""
        named = (split or "").strip() or None
        if named and self.given and usual_split(named) != usual_split(self.given):
            self.skips.add(f"entries whose split is not the given {self.given!r} (the entry's split is used)", where)
        return named or self.given

    def note(self, image: str, split: str | None, value: JsonValue) -> None:
        """Store the split that an entry names for its image. Raises DataError as `check` does."""
        if named := self.of_entry(split, value.where()):
            self.check(image, named, value)
            self.named.setdefault(image, named)

    def check(self, image: str, split: str, value: JsonValue, entry: str = "entry") -> None:
        """Raise DataError if an earlier entry, such as a "line", named another split for this image."""
        if usual_split(earlier := self.named.get(image, split)) != usual_split(split):
            value.refuse(f"`{split}`", f"`{earlier}`, the split of an earlier {entry} with {image}", "split")

    def of_folder(self, image: str, where: str) -> str | None:
        """Return the split of an image, else the one that the outermost folder in its path names (test for test2017).

        The folder does not count if a split is given.
        """
        named, inner = self.named.get(image), None if self.given else self._in_path(image)
        if named and inner and usual_split(named) != inner:
            self.skips.add("entries whose split is not that of their folder (the entry's split is used)", where)
        return named or inner

    def _in_path(self, image: str) -> str | None:
        for folder in image.split("/")[:-1]:
            if (split := usual_split(_NUMBER.sub("", folder))) in SHARES:
                if usual_split(folder) != split:
                    self.skips.add(f"images of the folder {folder[:40]!r} (read as the split {split!r})", image)
                return split
        return None

    def fill(self, records: Iterable[Record]) -> list[Record]:
        """Give each record without a split the given one, or a random one, which depends on its key and the seed."""
        records = list(records)
        self.drawn |= set() if self.given else {record.key for record in records if not record.split}
        return [r if r.split else replace(r, split=self.given or drawn_split(r.key, self.seed)) for r in records]

    def note_drawn(self, records: Sequence[Record], name: str) -> None:
        """Count the images with a random split, if other images or the file's name state a split."""
        drawn = [record for record in records if record.key in self.drawn]
        if drawn and len(drawn) < len(records):
            reason = "images without a split, in data with splits (a random split is used)"
            self.skips.add(reason, drawn[0].key, len(drawn))
        named = {usual_split(one) for one in NAMED.findall(name)}
        split = named.pop() if len(named) == 1 else None
        if split and (other := [record.key for record in drawn if record.split != split]):
            reason = f"images in random splits, though the file's name has {split!r} (set the split to use that)"
            self.skips.add(reason, other[0], len(other))


def drawn_split(key: str, seed: int) -> str:
    """Draw a split from a hash of key and seed.

    The split is the same on every machine, and does not change when images are added.
    """
    place = int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:8], "big") / 2**64
    for name, share in SHARES.items():
        place -= share
        if place < 0:
            return name
    return "train"


def usual_split(name: str) -> str:
    """Return the usual name of a split, such as val for `Validation `. Other names only lose spaces at their ends."""
    plain = name.strip()
    return (SYNONYMS | JOINED).get(plain.lower(), plain.lower() if plain.lower() in SHARES else plain)


def with_usual_splits(records: Iterable[Record], skips: Skips) -> list[Record]:
    """Give splits their usual names, and count the renamed records in `skips`. `dev` is kept if `val` exists too."""
    records = list(records)
    names = {record.split for record in records}
    usual = {name: usual_split(name) for name in names}
    for name, wanted in usual.items():
        if name.strip().lower() in SYNONYMS and wanted in names:
            usual[name] = name
            skips.add(f"two names of the same split, {name!r} and {wanted!r} (both kept)", wanted)
    for record in records:
        if (wanted := usual[record.split]) != record.split:
            skips.add(f"images of the split {record.split!r} (read as {wanted!r})", record.key)
    return [r if usual[r.split] == r.split else replace(r, split=usual[r.split]) for r in records]
