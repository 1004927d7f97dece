"""Pictures of a folder by what is in their files: one that was copied, renamed or touched is not looked at again."""

import json
import re
from pathlib import Path
from typing import Any

from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, sha256_of, text_of, write_atomically
from diptych.vision.pictures import ENDINGS, find_pictures

FILE = "contents.json"
SHA256 = re.compile("[0-9a-f]{64}")


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
            same = known[:2] == [state.st_size, state.st_mtime_ns]
            content = str(known[2]) if same else sha256_of(path)
        except OSError as error:
            refused[path] = f"cannot read the picture {path}: {error.strerror}"
            continue
        contents[path], states[name] = content, [state.st_size, state.st_mtime_ns, content]
    if states != before:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(cache / FILE, json.dumps(states).encode())
    return contents, refused


def _kept(path: Path) -> dict[str, list[str | int]]:
    try:
        found = parse_json(text_of(path))
    except (OSError, ValueError):
        return {}
    return {name: state for name, state in found.items() if _is_state(state)} if isinstance(found, dict) else {}


def _is_state(state: Any) -> bool:
    return isinstance(state, list) and len(state) == 3 and SHA256.fullmatch(str(state[2])) is not None
