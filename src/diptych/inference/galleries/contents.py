"""Identify images by the content of their files, so that regions of copied or renamed files are not extracted again."""

import json
import re
import time
from pathlib import Path
from typing import Any

from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, sha256_of, sha256_of_json, text_of, write_atomically
from diptych.vision.image_files import find_pictures
from diptych.vision.upright import ENDINGS

FILE = "contents.json"
SHA256 = re.compile("[0-9a-f]{64}")
SETTLED = 2 * 10**9  # ns; a file changed more recently may change again without a new modification time


def read_contents(pictures: Path, cache: Path) -> tuple[dict[Path, str], dict[Path, str]]:
    """Return {path: SHA-256} of the images below a folder, sorted, and {path: reason} of unreadable files.

    A file is hashed again only if its size, times or inode have changed. The cache stores these values only for files
    that were not changed in the last 2 s. Raises DataError if there is no folder or no image.
    """
    if not pictures.is_dir():
        raise DataError(f"{pictures} is not a folder; pass a folder of images with --images")
    paths = find_pictures(pictures)
    if not paths:
        raise DataError(f"no images to search in {pictures}; expected files ending in {', '.join(ENDINGS)}")
    before = _saved(cache / FILE)
    states: dict[str, list[str | int]] = {}
    contents: dict[Path, str] = {}
    refused: dict[Path, str] = {}
    for path in paths:
        name = str(path.relative_to(pictures))
        try:
            settled, stat = time.time_ns() - SETTLED, path.stat()
            state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
            *same, content = before.get(name, [""])
            content = str(content) if same == state else sha256_of(path)
        except OSError as error:
            refused[path] = f"cannot read the image {path}: {error.strerror}"
            continue
        contents[path] = content
        if stat.st_ctime_ns < settled:
            states[name] = [*state, content]
    if states != before:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(cache / FILE, json.dumps([sha256_of_json(states), states]).encode())
    return contents, refused


def _saved(path: Path) -> dict[str, list[str | int]]:
    try:
        check, states = parse_json(text_of(path))
        sound = check == sha256_of_json(states) and all(map(_is_state, states.values()))
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return states if sound else {}


def _is_state(state: Any) -> bool:
    return isinstance(state, list) and len(state) == 5 and SHA256.fullmatch(str(state[4])) is not None
