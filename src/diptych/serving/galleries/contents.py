"""Identify images by the content of their files, so that copied, renamed or touched ones are not read again."""

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
    """Return the SHA-256 of each image below a folder, in order, and the reason for each unreadable one.

    A file is hashed again if its size or modification time has changed; the cache stores them. Raises DataError for a
    folder without images.
    """
    if not pictures.is_dir():
        raise DataError(f"no folder {pictures}; give one with images: --pictures DIR")
    paths = find_pictures(pictures)
    if not paths:
        raise DataError(f"an empty gallery: no images in {pictures}; wanted files ending in {', '.join(ENDINGS)}")
    before = _saved(cache / FILE)
    states: dict[str, list[str | int]] = {}
    contents: dict[Path, str] = {}
    refused: dict[Path, str] = {}
    for path in paths:
        name = str(path.relative_to(pictures))
        try:
            state = path.stat()
            known = before.get(name, [])
            same = known[:2] == [state.st_size, state.st_mtime_ns]
            content = str(known[2]) if same else sha256_of(path)
        except OSError as error:
            refused[path] = f"cannot read the image {path}: {error.strerror}"
            continue
        contents[path], states[name] = content, [state.st_size, state.st_mtime_ns, content]
    if states != before:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(cache / FILE, json.dumps(states).encode())
    return contents, refused


def _saved(path: Path) -> dict[str, list[str | int]]:
    try:
        saved = parse_json(text_of(path))
    except (OSError, ValueError):
        return {}
    return {name: state for name, state in saved.items() if _is_state(state)} if isinstance(saved, dict) else {}


def _is_state(state: Any) -> bool:
    return isinstance(state, list) and len(state) == 3 and SHA256.fullmatch(str(state[2])) is not None
