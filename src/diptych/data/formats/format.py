"""A data format: its name, its files, how they are recognised, and how they are read."""

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from diptych.core import Record
from diptych.data.formats.names import Names
from diptych.data.formats.parsing import Pictures, Skips, first_line, key_of_name, parsed_line, picture_at, read_json
from diptych.data.formats.splits import Splits
from diptych.data.formats.values import LOOKED_AT, JsonValue
from diptych.runtime.errors import DataError
from diptych.runtime.files import refuse_unread
from diptych.vision.archives import archive_of, beside
from diptych.vision.image_files import is_named_image

JSON = (".json", ".jsonl")
NEAREST = 2  # an error suggests this many formats
LIST_THEM = "all formats: diptych data formats"
Item = TypeVar("Item")


@dataclass(frozen=True)
class Wanted:
    """Options of a reader, such as the folder of the images, or the split of files that do not name a split."""

    pictures: Path | Pictures | None = None  # where image files are; None: they are not needed
    split: str | None = None  # the split of all records; None: each image gets a random split that depends on `seed`
    seed: int = 0
    skips: Skips = field(default_factory=Skips)  # counts entries that are left out
    crowds: bool = False  # True: COCO's crowd boxes (`iscrowd`) are kept
    stored_boxes: bool = False  # True: boxes and sizes are of the pixels as stored, before EXIF's orientation
    names: Names = field(default_factory=Names, compare=False)  # of the images, for `name_of`

    @property
    def splits(self) -> Splits:
        """What decides about the splits of the images of one file."""
        return Splits(self.split, self.seed, self.skips)

    def name_of(self, image: str, where: str) -> str:
        """Return the one name of an image file, of which an entry at the place `where` writes the path `image`."""
        given = self.pictures
        folders = given.folders if isinstance(given, Pictures) else () if given is None else (given,)
        return self.names.of(image, folders, self.skips, where)

    def records(self, images: Iterable[Item], made: Callable[[Item], Record]) -> list[Record]:
        """Return `made(image)` for each image.

        Images for which this raises DataError, such as missing files, are skipped.
        """
        return self.skips.every(images, made, "image")

    def splitting(self, records: Sequence[Record]) -> list[Record]:
        """Return the records with the given split, else with none yet, for formats whose files have no splits."""
        return [replace(record, split=self.split or "") for record in records]

    def record(
        self, image: str, where: str, *, key: str | None = None, split: str | None = None, **fields: Any
    ) -> Record:
        """Return the record of an image file. Entries may write its path in several ways; `image` is its `name_of`.

        `key` is by default the file's name without the suffix. Raises DataError, with the place `where`, for an
        image that is missing or outside the folder.
        """
        key = key_of_name(image) if key is None else key
        path = picture_at(self.pictures, self.names.first.get(image, image), where, self.skips)
        return Record(key, split or self.split or "", path, **fields)


def files_of(records: Iterable[Record]) -> Iterator[Path]:
    """Yield the files that hold the records' images: both files of a pair; for an image in an archive, the archive."""
    for image in (record.image for record in records if record.image is not None):
        for one in beside(image) or (image,):
            inside = archive_of(one)
            yield inside[0] if inside is not None else one


def note_unread(skips: Skips, folder: Path, taken: Container[Path], pictures: str) -> None:
    """Count a folder's files that are not in `taken`, by suffix. Images are counted under the reason `pictures`."""
    for inner, folders, files in os.walk(folder, onerror=refuse_unread):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for path in (Path(inner, name) for name in sorted(files) if not name.startswith(".")):
            if path not in taken:
                where = os.fsencode(path).decode("utf-8", "backslashreplace")
                skips.add(pictures if is_named_image(path.name) else unread(path.name), where)


def unread(name: str) -> str:
    """Return the reason under which a file that is not read is counted."""
    ending = os.fsencode(Path(name).suffix.lower()[:20]).decode("utf-8", "backslashreplace")
    return f"files ending in {ending or 'nothing'} (not read)"


class ByImage(dict[Any, tuple[str, list[Item]]], Generic[Item]):
    """{image: (place of its first item, items)}: the items of a file, such as captions, grouped by image, in order."""

    def add(self, image: str | int, item: Item, where: str) -> None:
        self.setdefault(image, (where, []))[1].append(item)

    def records(self, wanted: Wanted, made: Callable[[Any, tuple[Item, ...], str], Record]) -> list[Record]:
        """Return `made(name, items, place)` for each image. Images for which this raises DataError are skipped."""
        return wanted.records(self, lambda image: made(image, tuple(self[image][1]), self[image][0]))


@dataclass(frozen=True)
class Source:
    """A file or folder, with the properties from which its format is recognised."""

    path: Path

    @cached_property
    def is_lines(self) -> bool:
        """True for a file of JSON lines, which may also be named .json."""
        if self.path.suffix.lower() not in JSON or not self.path.is_file():
            return False
        line, more = first_line(self.path)
        return self.path.suffix.lower() == ".jsonl" or (more and line.startswith("{") and line.endswith("}"))

    @cached_property
    def json(self) -> JsonValue:
        """The value of a JSON file, or of the first line of JSON lines. The file is read once."""
        return parsed_line(self.path) if self.is_lines else read_json(self.path)

    @cached_property
    def endings(self) -> set[str]:
        """The suffixes of a folder's files, in lower case."""
        return {one.suffix.lower() for one in self.path.iterdir()} if self.path.is_dir() else set()

    @cached_property
    def names(self) -> dict[str, None]:
        """The keys of a JSON value, and the keys of the first entries of its lists, in order.

        For other files, the column names.
        """
        if self.path.suffix.lower() in JSON:
            value = self.json.value
            inner = value.values() if isinstance(value, dict) else [value]
            lists = (one.values() if isinstance(one, dict) else one for one in inner if isinstance(one, dict | list))
            entries = [value, *inner, *(entry for some in lists for entry in islice(some, LOOKED_AT))]
            return dict.fromkeys(name for one in entries if isinstance(one, dict) for name in one)
        line = first_line(self.path)[0] if self.path.is_file() else ""
        columns = [one.strip().strip('"') for one in re.split(r"[,\t]", line)]
        return dict.fromkeys(columns if all(one.isidentifier() for one in columns) else ())

    def _value(self, ending: str = ".json") -> Any:
        """Return the JSON value of the file (of its first line if `ending` is ".jsonl"); None for other files."""
        if self.path.suffix.lower() not in JSON or not self.path.is_file() or self.is_lines != (ending == ".jsonl"):
            return None
        try:
            return self.json.value
        except DataError:
            if self.is_lines:  # the reader of JSON lines will raise an error that is more specific
                return None
            raise

    def has(self, *names: str, ending: str = ".json") -> bool:
        """Return True if the file (or its first line, if `ending` is ".jsonl") is a JSON object with these keys."""
        if ending == ".jsonl" and self.is_lines:
            with suppress(DataError):
                return _is_object(parsed_line(self.path, *names).value, names)
        return _is_object(self._value(ending), names)

    def first_has(self, name: str, list_of: str = "") -> bool:
        """Return True if one of the first objects in the file's JSON list or object has the key `name`.

        With `list_of`, the file is an object that has the list under the key `list_of`.
        """
        value = self._value()
        if list_of:
            value = value.get(list_of) if isinstance(value, dict) else None
        entries = value.values() if isinstance(value, dict) else value
        return isinstance(value, list | dict) and any(_is_object(one, [name]) for one in islice(entries, LOOKED_AT))


def _is_object(value: Any, names: Sequence[str]) -> bool:
    return isinstance(value, dict) and set(names) <= set(value)


@dataclass(frozen=True)
class Format:
    """A data format, as listed in `FORMATS`."""

    what: str  # a description for users, such as "a COCO captions .json"
    fits: Callable[[Source], bool]  # True if the file or folder has this format
    read: Callable[..., list[Record]]  # called as read(wanted, *sources); the sources are in the order of `files`
    files: tuple[str, ...] = ("file",)  # content of each file, as shown in a manifest's example
    least: int = 1  # number of files that the format requires
    # Suffixes of the file (by default .json) and keys of its first entries. They are used to suggest formats for an
    # unknown file. Formats of folders have neither.
    endings: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def records(self, wanted: Wanted, *sources: Source) -> list[Record]:
        """Read the records. Images with a random split are counted if the data names splits for other images."""
        splits, file = wanted.splits, sources[0].path
        records = splits.fill(self.read(replace(wanted, names=Names()), *sources))
        splits.note_drawn(records, file.stem if file.is_file() else "")
        return records

    def lacks(self, ending: str, names: Iterable[str]) -> list[str]:
        """Return what a file lacks to have this format: missing keys, and the format's suffixes if it has none of them.

        `ending`: the file's suffix. `names`: its keys.
        """
        endings = self.endings or JSON[:1]
        return [name for name in self.names if name not in names] + [" or ".join(endings)] * (ending not in endings)


def one_of(formats: dict[str, Format], source: Source) -> tuple[str, Format] | None:
    """Return the first format that fits the source, as (name, format). Return None if no format fits."""
    return next(((name, one) for name, one in formats.items() if one.fits(source)), None)


# {first bytes of a file that no reader opens: what the file is, and how to convert it}.
_PACKED = {
    b"\x1f\x8b": "is compressed by gzip; unpack it: gunzip -k",
    b"BZh": "is compressed by bzip2; unpack it: bunzip2 -k",
    b"\xfd7zXZ": "is compressed by xz; unpack it: unxz -k",
    b"\x28\xb5\x2f\xfd": "is compressed by zstandard; unpack it: unzstd",
    b"PK\x03\x04": "is a zip archive or an office document; save its table as .csv, or unpack it: unzip",
    b"PAR1": "is a Parquet file; in Python: diptych.Dataset.from_rows(pandas.read_parquet(FILE)), with FILE",
}


def _packed(path: Path) -> str | None:
    """Return why a file cannot be read (compressed, Parquet, empty, ...) and how to convert it, else None."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.readline(10_000)
    if not head:
        return f"{path} is empty; write it again, or download it again"
    for mark, name in ((b";", "semicolons"), (b"|", "bars (|)")):
        if path.suffix.lower() == ".csv" and mark in head and b"," not in head:
            return f"{path} has columns separated by {name}; expected commas: export it again, or replace them"
    if path.suffix.lower() == ".csv" and is_named_image(os.fsdecode(head.split(b",")[0].strip(b'" '))):
        return f"{path} begins with an image; add a first line that names the columns, such as image,caption"
    return next((f"{path} {what} {path}" for magic, what in _PACKED.items() if head.startswith(magic)), None)


def not_known(source: Source, formats: dict[str, Format]) -> DataError:
    """Return the error for a file of unknown format.

    It lists the names in the file, the nearest formats, and what the file lacks for each. For a compressed or Parquet
    file, or a CSV with semicolons, it describes how to convert the file.
    """
    if packed := _packed(source.path):
        return DataError(f"{packed}; {LIST_THEM}")
    names, of_files = source.names, [(name, one) for name, one in formats.items() if one.endings or one.names]
    lacking = {name: one.lacks(source.path.suffix.lower(), names) for name, one in of_files}
    # Formats are sorted by the share of their keys that the file lacks. The suffix counts as one of the keys.
    nearest = sorted(of_files, key=lambda one: len(lacking[one[0]]) / (1 + len(one[1].names)))[:NEAREST]
    lines = (f"{name}, {one.what} (lacks {', '.join(lacking[name]) or 'its structure'})" for name, one in nearest)
    has = f", with {', '.join(f'`{name}`' for name in list(names)[:8])}," if names else ""
    return DataError(
        f"{source.path}{has} is not data that Diptych reads; expected one of {len(formats)} formats, nearest: "
        f"{'; '.join(lines)}; {LIST_THEM}"
    )
