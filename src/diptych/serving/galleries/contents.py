"""Pictures of a folder by what is in their files: one that was copied, renamed or touched is not looked at again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from diptych.errors import DataError
from diptych.files import parse_json, write_atomically
from diptych.vision.pictures import ENDINGS, find_pictures

FILE = "contents.json"


def read_contents(pictures: Path, cache: Path) -> tuple[dict[Path, str], dict[Path, str]]:
    """The SHA-256 of each picture below a folder, in order, and what could not be read, with the reason.

    A file is hashed again where its size or its time has changed since; the cache keeps these. Raises DataError.
    """
    if not pictures.is_dir():
        raise DataError(f"no folder {pictures}; give one with pictures: --pictures DIR")
    found = find_pictures(pictures)
    if not found:
        raise DataError(f"an empty gallery: no pictures in {pictures}; wanted files ending in {', '.join(ENDINGS)}")
    before = _kept(cache / FILE)
    states: dict[str, list[str | int]] = {}
    contents: dict[Path, str] = {}
    refused: dict[Path, str] = {}
    for path in found:
        name = str(path.relative_to(pictures))
        try:
            state = path.stat()
            known = before.get(name, [])
            same = len(known) == 3 and known[:2] == [state.st_size, state.st_mtime_ns]
            content = str(known[2]) if same else _sha256(path)
        except OSError as error:
            refused[path] = f"cannot read the picture {path}: {error.strerror}"
            continue
        contents[path], states[name] = content, [state.st_size, state.st_mtime_ns, content]
    if states != before:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(cache / FILE, json.dumps(states).encode())
    return contents, refused


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(path: Path) -> dict[str, list[str | int]]:
    try:
        found = parse_json(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(one, list) for one in found.values()) else {}
