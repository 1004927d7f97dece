"""Identify images by the content of their files, so that regions of copied or renamed files are not extracted again."""

import json
import re
from pathlib import Path
from typing import Any

from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, sha256_of, sha256_of_json, stamp_of, text_of, write_atomically
from diptych.vision.image_files import find_pictures
from diptych.vision.upright import ENDINGS

FILE = "contents.json"
SHA256 = re.compile("[0-9a-f]{64}")


def read_contents(pictures: Path, cache: Path) -> tuple[dict[Path, str], dict[Path, str]]:
    """Return {path: SHA-256} of the images below a folder, sorted, and {path: reason} of unreadable files.

    A file is hashed again only if its stamp (`stamp_of`) is not the one in the cache. Raises DataError if there is no
    folder or no image.
    """
    if not pictures.is_dir():
        raise DataError(f"{pictures} is not a folder; pass a folder of images with --images")
    paths = find_pictures(pictures)
    if not paths:
        raise DataError(f"no images to search in {pictures}; expected files ending in {', '.join(ENDINGS)}")
    before = _saved(cache / FILE)
    states: dict[str, list[str]] = {}
    contents: dict[Path, str] = {}
    refused: dict[Path, str] = {}
    for path in paths:
        name = str(path.relative_to(pictures))
        try:
            stamp, (known, content) = stamp_of(path), before.get(name, ["", ""])
            content = content if stamp == known else sha256_of(path)
        except OSError as error:
            refused[path] = f"cannot read the image {path}: {error.strerror}"
            continue
        contents[path], states[name] = content, [stamp, content]
    if states != before:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(cache / FILE, json.dumps([sha256_of_json(states), states]).encode())
    return contents, refused


def _saved(path: Path) -> dict[str, list[str]]:
    try:
        check, states = parse_json(text_of(path))
        sound = check == sha256_of_json(states) and all(map(_is_state, states.values()))
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return states if sound else {}


def _is_state(state: Any) -> bool:
    return isinstance(state, list) and len(state) == 2 and SHA256.fullmatch(str(state[1])) is not None
