"""The split of an image: its usual name, and the draw for images whose data name none. `Wanted` uses both."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace

from diptych.core import Record
from diptych.data.formats.parsing import Skips

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
SYNONYMS = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}
JOINED = {"restval": "train"}  # {part of a split: split}; restval: images of COCO's val set on which papers train
# Finds a split in a file's name, such as train in train2017.
NAMED = re.compile(rf"(?<![a-z])({'|'.join((*SHARES, *SYNONYMS))})(?=\d*(?![a-z]))", re.I)


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
