"""Read a manifest: a JSON file that lists the files of a data set. Records of the same image are merged.

    {"images": "train2014", "split": "train", "captions": "annotations/captions_train2014.json",
     "vqa": ["v2_OpenEnded_mscoco_train2014_questions.json", "v2_mscoco_train2014_annotations.json"]}

Paths are relative to the manifest's folder. `images` is a folder or a list of folders, by default the manifest's
folder. `split` is the split of all records whose files do not name a split. If `crowds` is true, COCO's crowd boxes are
kept. `about` is a comment. Every other name is a format of `FORMATS`; its value is a file, or the list of the files
that the format needs. A data set with several splits is written as {"sets": [{...}, {...}]}, with an object for each
split.

Records of missing images are counted and left out, because downloads of public sets are seldom complete.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.data.formats.format import Format, Source, Wanted, one_of
from diptych.data.formats.parsing import Pictures, Skips, combined
from diptych.data.formats.public import ABOUT, IMAGES, SETS, SPLIT
from diptych.data.formats.splits import with_usual_splits
from diptych.data.formats.values import JsonValue, Text
from diptych.runtime.errors import DataError, nearest
from diptych.runtime.plugins import raise_failed
from diptych.vision.archives import is_there
from diptych.vision.image_files import same_shape

WHAT = "a manifest .json that names the files of a set"
CROWDS = "crowds"
OWN = (IMAGES, SPLIT, ABOUT, CROWDS)
KEYED = ("questions", "expressions", "choices", "statements")  # fields of `Record` whose items have keys of their own
_COCO = re.compile(r"COCO_\w+_\d{12}$")  # matches names of COCO images, which no other data set uses
Formats = Mapping[str, Format]
_Name: Any = Text


def fits(source: Source, formats: Formats) -> bool:
    """Return True for a manifest: it has `sets`, or paths under the name of a format or under `images`."""
    if not source.has():
        return False
    values = source.json.value
    texts = {name for name, value in values.items() if isinstance(value, str) or _are_texts(value)}
    return SETS in values or bool(texts & {*formats, IMAGES}) or (bool(texts) and texts == set(values))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def example(name: str, form: Format) -> str:
    """Return a hint on how to list the files of a format in a manifest."""
    files = ", ".join(f'"{file.upper()}"' for file in form.files[: form.least])
    return f'write them into a manifest, {{"images": "FOLDER", "{name}": [{files}]}}'


def read(source: Source, formats: Formats, wanted: Wanted, need_pictures: bool) -> list[Record]:
    """Read all records of all sets.

    `wanted.pictures`, if given, replaces `images`. `wanted.split` is the split of sets that do not name a split.
    """
    sets = source.json.inner(SETS).items() if SETS in source.json.value else [source.json]
    if not sets:
        source.json.refuse("no sets", "at least one", SETS)
    homes, placed = list[tuple[Path, ...]](), list[tuple[Record, Path | None]]()
    for one in sets:
        made, folders = _set(one, source.path.parent, formats, wanted, need_pictures)
        home = _home(folders, homes)
        placed += [(record, home) for record in made]
    records = with_usual_splits((record for record, _ in placed), wanted.skips)
    same = _same_keys(records, [home for _, home in placed])
    joined = _keys_of_their_own(combined(_of_one_shape(same)))
    return _with_images(joined, wanted.skips, source.path) if need_pictures else joined


def _set(
    entry: JsonValue, folder: Path, formats: Formats, wanted: Wanted, need_pictures: bool
) -> tuple[list[Record], tuple[Path, ...]]:
    """Return the records of a set, and its folders of images, if it names them."""
    for name in entry.read(dict[str, Any]):
        if name not in (*formats, *OWN):
            wanted_names = f"{IMAGES}, {SPLIT} or the name of a format; {nearest(name, (*formats, *OWN))}"
            raise_failed(f"{entry.where()}: found `{name}`, expected {wanted_names}")
            entry.refuse(f"`{name}`", wanted_names)
    named = [name for name in entry.value if name in formats]
    if not named:
        entry.refuse("no file of data", f"at least one, under {', '.join(formats)}")
    split = entry.inner(SPLIT).read(_Name) if SPLIT in entry.value else wanted.split
    pictures = _pictures(entry, folder, wanted.pictures, need_pictures)
    crowds = entry.inner(CROWDS).read(bool) if CROWDS in entry.value else wanted.crowds
    mine = replace(wanted, pictures=pictures, split=split, crowds=crowds)
    records = [record for name in named for record in _read(name, entry.inner(name), folder, formats, mine)]
    return records, pictures.folders if IMAGES in entry.value else ()


def _home(folders: tuple[Path, ...], earlier: list[tuple[Path, ...]]) -> Path | None:
    """Return the first folder of images of a set, or of an earlier set if the two share a folder."""
    mine = tuple(Path(os.path.normpath(one)) for one in folders)
    for others in earlier:
        if any(a.is_relative_to(b) or b.is_relative_to(a) for a in mine for b in others):
            return others[0]
    earlier += [mine] if mine else []
    return mine[0] if mine else None


def _pictures(entry: JsonValue, folder: Path, given: Path | Pictures | None, need_pictures: bool) -> Pictures:
    if isinstance(given, Path):
        return Pictures((given,), need_pictures)
    if IMAGES not in entry.value:
        return Pictures((folder,), need_pictures)
    paths = _paths(images := entry.inner(IMAGES), folder)
    for path, where in paths:
        if need_pictures and not path.exists():
            where.refuse(f"no folder {path}", "the folder of the images (also as --images FOLDER)")
    if not paths:
        images.refuse("no folder", "at least one")
    return Pictures(tuple(path for path, _ in paths), need_pictures)


def _paths(entry: JsonValue, folder: Path) -> list[tuple[Path, JsonValue]]:
    """Return the path or paths in an entry, each with its location in the manifest."""
    named = entry.items() if isinstance(entry.value, list) else [entry]
    return [(folder / one.read(_Name), one) for one in named]


def _read(name: str, entry: JsonValue, folder: Path, formats: Formats, wanted: Wanted) -> list[Record]:
    form = formats[name]
    entries = _paths(entry, folder)
    if not form.least <= len(entries) <= len(form.files):
        entry.refuse(f"{len(entries)} files", f"{form.least} to {len(form.files)}: {', '.join(form.files)}")
    files = []
    for (path, one), what in zip(entries, form.files, strict=False):
        if not path.exists():
            one.refuse(f"nothing at {path}", f"the {what} of the format {name}")
        files.append(Source(path))
    if not form.fits(files[0]):
        other = one_of(dict(formats), files[0])
        hint = f"; it looks like `{other[0]}`" if other is not None else ""
        entries[0][1].refuse(f"the file {files[0].path.name}", f"{form.what}{hint}")
    return form.records(wanted, *files)


def _same_keys(records: Sequence[Record], homes: Sequence[Path | None]) -> list[Record]:
    """Give all records of an image the key of its first record.

    Add folder names to keys until different images have different keys. Images are the same if their files are. Images
    without files are the same if their keys are, and their sets have no folders of their own (`homes`).
    """
    # {path of an image's file: the image's key}. Without a file, the path is (folder of the set, image's name).
    keys: dict[str | tuple[Path, str], str] = {}
    filed: dict[tuple[Path, str], str] = {}  # {(folder of the set, name): key} of images with a file
    taken: set[str] = set()
    named = []
    for record, home in zip(records, homes, strict=True):
        path = None if record.image is None else os.path.normpath(record.image)
        place = None if home is None or _COCO.search(record.key) else (home, record.key)
        key = record.key
        if one := path or place:
            known = keys.get(one) or (place and (keys.get(place) if path else filed.get(place)))
            folders = list(Path(one).parts[:-1] if isinstance(one, str) else one[0].parts)
            while not known and key in taken and folders:
                key = f"{folders.pop()}/{key}"
            keys[one] = key = known or key
            taken.add(key)
            if path and place:
                filed.setdefault(place, key)
        named.append(record if key == record.key else replace(record, key=key))
    return named


def _of_one_shape(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records. Raise DataError if two files give an image sizes of different shape, which misplaces boxes."""
    sizes: dict[str, tuple[int, int]] = {}
    for record in records:
        size = record.size
        if size is not None and not same_shape(known := sizes.setdefault(record.key, size), size):
            raise DataError(
                f"this image is {known[0]} x {known[1]} pixels in one file and {size[0]} x {size[1]} in another, "
                "expected one size; correct the wrong one, or leave out one of the files",
                key=record.key,
            )
        yield record


def _keys_of_their_own(records: list[Record]) -> list[Record]:
    """Give a question, expression, choice or statement a new key if an earlier item has the same key.

    Predictions are stored by key.
    """
    taken: dict[str, set[str]] = {name: set() for name in KEYED}
    own = []
    for record in records:
        items: dict[str, Any] = {name: [] for name in KEYED}
        for name, keys in taken.items():
            for item in getattr(record, name):
                key = f"{record.key}/{item.key}" if item.key in keys else item.key
                while key in keys:
                    key += "+"
                keys.add(key)
                items[name].append(item if key == item.key else replace(item, key=key))
            items[name] = tuple(items[name])
        own.append(replace(record, **items))
    return own


def _with_images(records: list[Record], skips: Skips, path: Path) -> list[Record]:
    """Return the records whose image file exists. The other records are counted in `skips`."""
    there = []
    for record in records:
        if record.image is None or is_there(record.image):
            there.append(record)
        else:
            skips.add("missing images", str(record.image))
    if records and not there:
        raise DataError(
            f"{path}: found none of the {len(records)} images that it names (the first: {records[0].image}); download "
            f"the images, or set `{IMAGES}` to their folder"
        )
    return there
