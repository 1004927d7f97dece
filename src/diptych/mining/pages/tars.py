"""Tars as img2dataset writes them: KEY.jpg, KEY.txt, KEY.json, in any order. Read once for what is said of pictures,
and once more for those that are wanted; never held whole."""

import lzma
import tarfile
import zlib
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import IO

from diptych.mining.pages import inputs, warc
from diptych.mining.pages.texts import LONGEST
from diptych.runtime.files import parse_json

HERE = "file:"  # what the addresses of pictures begin with that lie on this disk or in a tar
MOST_MEMBERS = 300_000  # of a tar; img2dataset writes 30,000
PICTURES = ("jpg", "jpeg", "png", "webp")
DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


def tar_lines(path: Path, key: str) -> Iterator[inputs.InputLine]:
    """Its pictures; damage is told after those that were read. `key` tells it from other tars of its name."""
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
            if ending in PICTURES:
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
    """Those of these addresses, as far as the tar is whole."""
    with suppress(*DAMAGE):
        for name, file in _members(path):
            if (address := _address(path, key, name)) in wanted:
                yield address, file.read()


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Files of a sensible size, by name."""
    with tarfile.open(path, "r:*") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # all would be kept
            content = tar.extractfile(member) if member.isfile() and member.size <= warc.MOST_BODY else None
            if content is not None:
                yield member.name, content


def _address(path: Path, key: str, name: str) -> str:
    return f"{HERE}{key}/{path.name}/{name}"


def _about(content: bytes) -> tuple[str | None, str]:
    try:
        found = parse_json(content)
    except ValueError:
        found = None
    caption, page = (found.get("caption"), found.get("url")) if isinstance(found, dict) else (None, None)
    return (caption[:LONGEST] if isinstance(caption, str) else None, page if isinstance(page, str) else "")
