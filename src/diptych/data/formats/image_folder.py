"""The hub's ImageFolder: images next to a metadata.jsonl, whose lines have a `file_name` and a caption."""

from functools import partial
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Pictures, each_json_line
from diptych.data.formats.values import JsonValue

NAME = "metadata.jsonl"
_CAPTIONS = ("text", "caption", "captions", "sentence", "description", "prompt")  # the first of them that a line has
_SPLITS = {"validation": "val", "valid": "val", "dev": "val", "val": "val", "test": "test", "train": "train"}


def tables(path: Path) -> list[Path]:
    """Return the tables of a folder: its own, or those of its splits' folders."""
    return [path / NAME] if (path / NAME).is_file() else sorted(path.glob(f"*/{NAME}"))


def fits(source: Source) -> bool:
    return source.has("file_name", ending=".jsonl") or (source.path.is_dir() and bool(tables(source.path)))


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read one record an image; its key is its name from the folder. Folders such as `train` name its split."""
    root, by_image = source.path if source.path.is_dir() else source.path.parent, ByImage[str]()
    pictures = Pictures((root,), wanted=False) if isinstance(wanted.pictures, Pictures) else root
    here = Wanted(pictures if source.path.is_dir() else wanted.pictures, wanted.split, wanted.seed, wanted.skips)
    for table in tables(root) if source.path.is_dir() else [source.path]:
        each_json_line(table, here.skips, partial(_take, by_image, here, table.parent.relative_to(root)))
    return by_image.records(
        here,
        lambda name, captions, where: here.record(
            name, where, key=name, split=wanted.split or _SPLITS.get(name.split("/")[0]), captions=captions
        ),
    )


def _take(by_image: ByImage[str], here: Wanted, folder: Path, value: JsonValue) -> None:
    line, where = value.read(dict[str, Any]), value.where()
    name = line.get("file_name")
    captions = next((line[one] for one in _CAPTIONS if one in line), None)
    captions = [captions] if isinstance(captions, str) else captions
    if not isinstance(name, str) or not name:
        value.refuse("a line without it", "one with `file_name`")
    if not isinstance(captions, list) or not all(isinstance(one, str) for one in captions):
        value.refuse("no caption", f"a text, or a list of texts, under one of {', '.join(_CAPTIONS)}")
    for caption in captions:
        if caption.strip():
            by_image.add((folder / name).as_posix(), caption, where)
        else:
            here.skips.add("empty captions", where)
