"""Read web images with captions as img2dataset writes them: tars (WebDataset), or folders of files.

Each image has the files KEY.jpg and KEY.txt, in a tar such as 00000.tar or a folder such as 00000/. KEY.txt is one
caption, as in img2dataset, even if it has several lines. Without KEY.txt, the `caption` in KEY.json is read. The path
may also be a single tar. Conceptual Captions, SBU and LAION are often downloaded with img2dataset.
"""

from functools import partial
from pathlib import Path

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.format import Source, Wanted, note_unread, unread
from diptych.data.formats.parsing import Skips, parse_value
from diptych.data.formats.values import Words
from diptych.runtime.errors import DataError
from diptych.runtime.files import as_text, bytes_of
from diptych.vision.archives import damaged_members, members, read_member, text_keys
from diptych.vision.image_files import is_named_image

CAPTION, NOTES = ".txt", ".json"
TARS = "*.[tT][aA][rR]"


def fits(folder: Path) -> bool:
    """Return True for a tar, for a folder of tars, and for a folder of folders with images and captions."""
    if not folder.is_dir():
        return folder.suffix.lower() == ".tar" and folder.is_file()
    if any(folder.glob(TARS)):
        return True
    first = next((inner for inner in sorted(folder.iterdir()) if inner.is_dir()), None)
    few = [file for file, _ in zip(first.iterdir(), range(50), strict=False)] if first is not None else []
    captions = {file.stem for file in few if file.suffix.lower() == CAPTION}
    images = [file for file in few if is_named_image(file.name)]
    return any(file.stem in captions or file.with_suffix(CAPTION).is_file() for file in images)


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read one record per image with a caption, in the order of the tars or folders and of the images in them.

    Images without captions, captions without images, empty captions, and files that are not read are counted in
    `wanted.skips` and left out.
    """
    folder, skips, records, taken = source.path, wanted.skips, list[Record](), set[Path]()
    tars = [folder] if folder.is_file() else sorted(folder.glob(TARS))
    for shard in tars or sorted(inner for inner in folder.iterdir() if inner.is_dir()):
        images, captions, notes = _named(shard, skips)
        taken.update(
            (shard,) if tars else (shard / name for some in (images, captions, notes) for name in some.values())
        )
        keys = text_keys(images, captions)
        for key in images.keys() & notes.keys() - keys.keys():
            keys[key], captions[key] = key, notes[key]
        for key, name in images.items():
            if key not in keys:
                skips.add("images without a caption", f"{shard / name}")
        captioned = [(key, name, captions[keys[key]]) for key, name in images.items() if key in keys]
        for key, name, text in skips.every(captioned, partial(_with_words, shard), "caption"):
            if "\n" in text:
                skips.add("captions of several lines (each file is one caption)", f"{shard / captions[keys[key]]}")
            if text:
                full = f"{shard.stem}/{key}"
                records.append(Record(full, wanted.split or "", shard / name, captions=(text,)))
            else:
                why = "images without a caption" if captions[keys[key]] == notes.get(key) else "empty captions"
                skips.add(why, f"{shard / name}")
        for key in sorted(captions.keys() - set(keys.values())):
            skips.add("captions without an image", f"{shard / captions[key]}")
    if not records:
        raise DataError(f"{folder}: found no image with a caption, expected KEY.jpg with KEY.txt in tars or folders")
    if folder.is_dir():
        note_unread(skips, folder, taken, "images outside of the tars or folders (not read)")
    return records


def _named(shard: Path, skips: Skips) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the names of the images, captions and notes (.json) in a tar or folder, each by key."""
    images, captions, notes = dict[str, str](), dict[str, str](), dict[str, str]()
    names = members(shard) if shard.is_file() else sorted(file.name for file in shard.iterdir())
    damaged = damaged_members(shard) if shard.is_file() else []
    for name in skips.every([*names, *damaged], partial(_whole, damaged), "file of a shard"):
        key, _, ending = name.rpartition(".")
        if f".{ending.lower()}" == CAPTION:
            captions[key] = name
        elif f".{ending.lower()}" == NOTES:
            notes[key] = name
        elif is_named_image(name):
            if key in images:
                skips.add("several images with the same key (the last one is read)", f"{shard / images[key]}")
            images[key] = name
        elif shard.is_file() and not name.rpartition("/")[2].startswith("."):
            skips.add(unread(name), f"{shard / name}")
    return images, captions, notes


def _whole(damaged: list[str], name: str) -> str:
    if name in damaged:
        raise DataError(name)
    return name


def _with_words(shard: Path, one: tuple[str, str, str]) -> tuple[str, str, str]:
    content = read_member(shard, one[2]) if shard.is_file() else bytes_of(shard / one[2])
    try:
        text = as_text(content).strip()
    except UnicodeDecodeError as cut:
        raise DataError(f"{shard / one[2]}: found bytes that are not UTF-8 (at byte {cut.start}); correct it") from None
    if one[2].lower().endswith(NOTES):  # metadata, whose `caption` is used if the image has no .txt
        text = parse_value(text, str(shard / one[2])).read(_Notes).caption or ""
    return one[0], one[1], text.strip()


class _Notes(Struct):
    caption: Words | None = None
