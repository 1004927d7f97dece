"""Data as a user names it: one path, and what lies there decides how it is read."""

from __future__ import annotations

from pathlib import Path

from diptych.core import Record
from diptych.errors import DataError
from diptych.sources import coco, conceptual, jsonl, storybook
from diptych.sources.reading import read_json
from diptych.vision.pictures import find_pictures

FORMS = (
    "a .jsonl of your own, a COCO captions .json, a Conceptual Captions .tsv, a folder of pictures, "
    "or one that `diptych storybook write` made"
)


def read(path: Path, pictures: Path | None = None) -> list[Record]:
    """All records there; `pictures` is where names of pictures start from, by default beside the file."""
    if not path.exists():
        raise DataError(f"nothing at {path}; wanted {FORMS}")
    if path.is_dir():
        return _folder(path)
    match path.suffix:
        case ".jsonl":
            return jsonl.read(path, pictures or path.parent)
        case ".json":
            return coco.read(path, pictures=pictures or path.parent)
        case ".tsv":
            return conceptual.read(path, pictures or path.parent)
        case _:
            raise DataError(f"{path} is no data that Diptych reads; wanted {FORMS}")


def _folder(path: Path) -> list[Record]:
    manifest = path / "storybook.json"
    if manifest.exists():
        return [record for split in read_json(manifest)["splits"].names() for record in storybook.read(path, split)]
    found = find_pictures(path)
    if not found:
        raise DataError(f"no pictures in {path}; wanted {FORMS}")
    return [Record(str(picture.relative_to(path)), picture=picture) for picture in found]
