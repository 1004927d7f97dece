"""Data as a user names it: one path, and what lies there decides how it is read."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from diptych.core import Record
from diptych.errors import DataError
from diptych.sources import coco, conceptual, jsonl, storybook
from diptych.sources.parsing import Skips, read_json
from diptych.vision.pictures import find_pictures

FORMS = (
    "a .jsonl of your own, a COCO captions .json, a Conceptual Captions .tsv, a folder of pictures, "
    "or one that `diptych storybook write` made"
)
SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


def read(
    path: Path,
    pictures: Path | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
    need_pictures: bool = True,
    skips: Skips | None = None,
) -> list[Record]:
    """All records there.

    `pictures` is where their names start from, by default beside the file; they must be there, unless `need_pictures`
    is False and no folder is given. Records whose data name no split get `split`, or one that the seed draws. What
    teaches nothing is counted in `skips`.
    """
    if not path.exists():
        raise DataError(f"nothing at {path}; wanted {FORMS}")
    if path.is_dir():
        return _folder(path)
    folder = pictures or (path.parent if need_pictures else None)

    def drawn(key: str) -> str:
        return split or drawn_split(key, seed)

    match path.suffix.lower():
        case ".jsonl":
            return jsonl.read(path, folder, drawn, skips)
        case ".json":
            records = coco.read(path, pictures=folder, split=split or path.stem, skips=skips)
        case ".tsv":
            records = conceptual.read(path, folder, split or path.stem)
        case _:
            raise DataError(f"{path} is no data that Diptych reads; wanted {FORMS}")
    return [replace(record, split=drawn(record.key)) for record in records]


def drawn_split(key: str, seed: int) -> str:
    """By a hash of both, so that a picture keeps its split when others join it, on every machine."""
    place = int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:8], "big") / 2**64
    for name, share in SHARES.items():
        place -= share
        if place < 0:
            return name
    return "train"


def _folder(path: Path) -> list[Record]:
    manifest = path / "storybook.json"
    if manifest.exists():
        return [record for split in read_json(manifest)["splits"].names() for record in storybook.read(path, split)]
    found = find_pictures(path)
    if not found:
        raise DataError(f"no pictures in {path}; wanted {FORMS}")
    return [Record(str(picture.relative_to(path)), image=picture) for picture in found]
