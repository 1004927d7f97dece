"""Tars as img2dataset writes them: KEY.jpg, KEY.txt, KEY.json, in any order.

A tar is read once for the texts of its images, and again for wanted images; it is never in memory as a whole.
"""

import tarfile
import zlib
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from diptych.mining.pages import inputs, warc
from diptych.mining.pages.texts import LONGEST
from diptych.runtime.files import parse_json
from diptych.vision.image_files import ENDINGS

HERE = "file:"  # prefix of addresses of images on this disk or in a tar
MOST_MEMBERS = 300_000  # of a tar; img2dataset writes 30,000
DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error)
GZIP, BZIP = b"\x1f\x8b", b"BZh"  # the first bytes of them


def tar_lines(path: Path, key: str) -> Iterator[inputs.InputLine]:
    """The images of a tar, and at the end a bad line if it is damaged. `key` distinguishes tars of one name."""
    pictures: dict[str, str] = {}
    texts: dict[str, str] = {}
    about: dict[str, tuple[str | None, str]] = {}  # caption and page
    fault = ""
    try:
        for number, (name, file) in enumerate(_members(path)):
            if number == MOST_MEMBERS:
                fault = f"a tar of more than {MOST_MEMBERS:,} files: what follows is left out"
                break
            stem, _, ending = name.rpartition(".")
            ending = ending.lower()
            if f".{ending}" in ENDINGS:
                pictures[stem] = name
            elif ending == "txt":
                texts[stem] = file.read(4 * LONGEST).decode("utf-8", "replace")[:LONGEST]
            elif ending == "json":
                about[stem] = _about(file.read())
    except DAMAGE as error:
        fault = f"a tar cut short or damaged: {type(error).__name__}"
    for stem, name in pictures.items():
        caption, page = about.get(stem, (None, ""))
        text = texts.get(stem) or caption
        yield inputs.InputLine(_address(path, key, name), () if text is None else (text,), page)
    if fault or not pictures:
        yield inputs.InputLine(bad=fault or "no pictures in the tar")


def tar_pictures(path: Path, key: str, wanted: Set[str]) -> Iterator[tuple[str, bytes]]:
    """Address and bytes of the wanted images, as far as the tar is whole."""
    with suppress(*DAMAGE):
        for name, file in _members(path):
            if (address := _address(path, key, name)) in wanted:
                yield address, file.read()


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the files up to `warc.MOST_BODY` bytes."""
    with path.open("rb") as file:
        head = file.read(3)
    # Not xz: 14 bytes of its header make it ask for 4 GiB.
    mode: Literal["r:gz", "r:bz2", "r:"] = "r:gz" if head[:2] == GZIP else "r:bz2" if head == BZIP else "r:"
    with tarfile.open(path, mode) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # else all stay in memory
            content = tar.extractfile(member) if member.isfile() and member.size <= warc.MOST_BODY else None
            if content is not None:
                yield member.name, content


def _address(path: Path, key: str, name: str) -> str:
    return f"{HERE}{key}/{path.name}/{name}"


def _about(content: bytes) -> tuple[str | None, str]:
    try:
        entry = parse_json(content)
    except ValueError:
        entry = None
    caption, page = (entry.get("caption"), entry.get("url")) if isinstance(entry, dict) else (None, None)
    return (caption[:LONGEST] if isinstance(caption, str) else None, page if isinstance(page, str) else "")
