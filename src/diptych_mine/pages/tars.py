"""Read tars as img2dataset writes them: KEY.jpg, KEY.txt and KEY.json, in any order.

A tar is read once for the texts, and once more for the wanted images. It is never in memory as a whole.
"""

import tarfile
import zlib
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal, Self

from diptych.runtime.files import as_text, parse_json
from diptych.vision.archives import text_keys
from diptych.vision.image_files import is_named_image
from diptych_mine.pages import inputs, warc
from diptych_mine.pages.texts import LONGEST

MOST_MEMBERS = 300_000  # at most this many files of a tar are read; img2dataset writes 30,000
GZIP, BZIP = b"\x1f\x8b", b"BZh"  # first bytes of compressed tars
NO_HEADER = {"InvalidHeaderError", "TruncatedHeaderError"}  # names of error classes that tarfile does not export
NAMED = 3  # at most this many damaged places of a tar are reported with their positions
DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error)


def tar_lines(path: Path, key: str) -> Iterator[inputs.InputLine]:
    """Yield an entry for each image of a tar, then a bad entry for each damaged part.

    `key` distinguishes tars of the same name.
    """
    pictures: dict[str, str] = {}
    texts: dict[str, str] = {}
    about: dict[str, inputs.InputLine] = {}
    faults, skipped = list[str](), list[int]()
    try:
        for number, (name, file) in enumerate(_members(path, skipped)):
            if number == MOST_MEMBERS:
                faults.append(f"a tar of more than {MOST_MEMBERS:,} files: the others are left out")
                break
            stem, _, ending = name.rpartition(".")
            ending = ending.lower()
            if is_named_image(name):
                pictures[stem] = name
            elif ending == "txt":
                texts[stem] = as_text(file.read(4 * LONGEST), "replace")[:LONGEST]
            elif ending == "json":
                about[stem] = _about(file.read())
    except DAMAGE as error:
        faults.append(f"a tar cut short or damaged: {type(error).__name__}")
    blocks = set(skipped)
    places = sorted(at for at in blocks if at - tarfile.BLOCKSIZE not in blocks)  # first block of each damaged part
    damaged = [f"a tar damaged at byte {at}: its complete files after that are read" for at in places[:NAMED]]
    faults = [*damaged, *["a tar damaged at further places"] * len(places[NAMED:]), *faults]
    keys = text_keys(pictures, texts)
    for stem, name in pictures.items():
        entry = about.get(stem, inputs.InputLine())
        own = inputs.texts_of(texts.get(keys.get(stem, stem))) or entry.texts
        where = _address(path, key, name)
        yield entry if entry.bad else replace(entry, address=where, texts=own)
    for fault in faults if faults or pictures else ["no pictures in the tar"]:
        yield inputs.InputLine(bad=fault)


def tar_pictures(path: Path, key: str, wanted: Set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the URL and bytes of each wanted image, up to the first damaged part of the tar."""
    with suppress(*DAMAGE):
        for name, file in _members(path, []):
            if (address := _address(path, key, name)) in wanted:
                yield address, file.read()


def _members(path: Path, skipped: list[int]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and content of each file of at most `warc.MOST_BODY` bytes.

    Invalid header blocks are skipped, and their positions are appended to `skipped`.
    """

    class Noting(tarfile.TarInfo):
        @classmethod
        def fromtarfile(cls, opened: tarfile.TarFile) -> Self:
            at: int = opened.offset
            try:
                return super().fromtarfile(opened)
            except tarfile.HeaderError as error:
                skipped.extend([at] if type(error).__name__ in NO_HEADER else [])
                raise

    with path.open("rb") as file:
        head = file.read(3)
    # xz is not accepted, because a header of 14 bytes could make the decoder allocate 4 GiB.
    mode: Literal["r:gz", "r:bz2", "r:"] = "r:gz" if head[:2] == GZIP else "r:bz2" if head == BZIP else "r:"
    with tarfile.open(path, mode, ignore_zeros=mode == "r:", tarinfo=Noting) as tar:
        tar.ignore_zeros = True
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # otherwise tarfile keeps all members in memory
            content = tar.extractfile(member) if member.isfile() and member.size <= warc.MOST_BODY else None
            if content is not None:
                yield member.name, content


def _address(path: Path, key: str, name: str) -> str:
    return f"{inputs.HERE}{key}/{path.name}/{name}"


def _about(content: bytes) -> inputs.InputLine:
    """Return the captions and the URL of the page in an image's JSON, or why the image is left out."""
    try:
        entry = parse_json(content)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        return inputs.InputLine()
    if inputs.held_out(entry):
        return inputs.InputLine(bad=inputs.OF_SPLIT)
    texts, page = inputs.texts_of(entry.get("caption")), entry.get("url")
    return inputs.InputLine(texts=tuple(one[:LONGEST] for one in texts), page=page if isinstance(page, str) else "")
