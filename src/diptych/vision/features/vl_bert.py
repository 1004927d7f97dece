"""VL-BERT's format: one JSON file per image, in a folder or a zip, with num_boxes image_w image_h boxes features.

Arrays are base64 of float32.

Files of Conceptual Captions also have `classes` (num_boxes, 1601). As in VL-BERT's reader, their rows are sorted by the
largest probability, with the background, highest first. In other files, rows stay in file order.
"""

import zipfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import bytes_of, parse_json
from diptych.runtime.zipped import DAMAGED, read_zipped
from diptych.vision.features import raw
from diptych.vision.features.raw import Folder, Listing, Raw, Unit, check_size, numbered, of_base64, refuse

AGAIN = "download the file again"


class _Entry(Struct):
    num_boxes: int
    image_w: int
    image_h: int
    boxes: str
    features: str
    classes: str | None = None


@dataclass(frozen=True)
class Archive:
    path: Path

    @cached_property
    def archive(self) -> zipfile.ZipFile:
        with explained(DataError, f"{self.path}: not a readable zip file", AGAIN, *DAMAGED):
            return zipfile.ZipFile(self.path)

    @cached_property
    def members(self) -> dict[str, zipfile.ZipInfo]:
        """Return the JSON members by image name.

        A folder with the zip's own name, as in VQA's zips, is not part of the name.
        """
        members = []
        for member in self.archive.infolist():
            path = PurePosixPath(member.filename)
            if path.suffix == ".json":
                inside = path.relative_to(self.path.stem) if path.parts[0] == self.path.stem else path
                members.append((inside.as_posix().removesuffix(".json"), member))
        return numbered(members)

    def names(self) -> Iterable[str]:
        return [name.partition("\0")[0] for name in self.members]

    def read(self, name: str) -> Raw:
        member, where = self.members[name], f"{self.path}, {self.members[name].filename}"
        check_size(member.file_size, where, name)
        with explained(DataError, f"{where}: cannot be read", AGAIN, *DAMAGED):
            return _raw(read_zipped(self.archive, member), where)


def units(listing: Listing) -> list[Unit]:
    folders: dict[Path, list[Path]] = {}
    for path in listing.ending(".json"):
        folders.setdefault(path.parent, []).append(path)
    loose: list[Unit] = [
        Folder(folder, {path.stem: path for path in files}, _read)
        for folder, files in folders.items()
        if any(map(_has_fields, files[: raw.LOOKED_AT]))  # only the first files, because there may be millions
    ]
    named = (zip_path for files in folders.values() for path in files for zip_path in _archives_of(path))
    archives = [Archive(path) for path in dict.fromkeys((*listing.ending(".zip"), *named))]
    return loose + [archive for archive in archives if archive.members]


def _archives_of(lines: Path) -> list[Path]:
    """Return the zips named in a list such as val_frcnn.json, with lines {"frcnn": "val_frcnn.zip@/00000000.json"}.

    The zips must be in the folder of the list. Raises DataError for zips in other folders.
    """
    with explained(DataError, f"{lines}: cannot be read", AGAIN), lines.open("rb") as file:
        if b'"frcnn"' not in file.readline(2000):
            return []
        file.seek(0)
        names = set(raw.each_whole((line for line in file if line.strip()), partial(_zip_of, lines), []))
    if outside := [name for name in sorted(names) if name.startswith("/") or ".." in name.split("/")]:
        refuse(f"{lines}, `frcnn`", repr(outside[0]), "a zip in the same folder", "move it there")
    return [lines.parent / name for name in sorted(names)]


def _zip_of(lines: Path, line: bytes) -> str:
    with raw.read_as_data(f"{lines}, `frcnn`"):
        return str(parse_json(line)["frcnn"].partition("@")[0])


def _has_fields(path: Path) -> bool:
    """Return True if a file begins like a JSON file of regions."""
    with suppress(OSError):
        with path.open("rb") as file:
            start = file.read(2000)
        return start.lstrip()[:1] == b"{" and b'"num_boxes"' in start and b'"boxes"' in start
    return False


def _read(path: Path) -> Raw:
    check_size(path.stat().st_size, str(path), path.name)
    return _raw(bytes_of(path), str(path))


def _raw(content: bytes, where: str) -> Raw:
    try:
        entry = msgspec.json.decode(content, type=_Entry)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        wanted = "the keys " + ", ".join(_Entry.__struct_fields__)
        refuse(where, f"no JSON of regions ({error})", wanted, AGAIN)
    fields = {"features": entry.features, "boxes": entry.boxes, "classes": entry.classes}
    given = {name: text for name, text in fields.items() if text is not None}
    arrays = {name: of_base64(text, "<f4", entry.num_boxes, where, name) for name, text in given.items()}
    classes = arrays.get("classes")
    scores = None if classes is None or not classes.size else classes.max(1)
    size, best_first = (entry.image_w, entry.image_h), classes is None
    return Raw(where, arrays["features"], arrays["boxes"], size, False, classes, scores, best_first)
