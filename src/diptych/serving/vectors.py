"""Pictures as vectors, kept beside what was seen of them: a model with two towers encodes each picture once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from diptych.errors import CheckpointError
from diptych.tasks.gallery import Records
from diptych.tasks.two_towers import Gallery

FOLDER = "vectors"  # in the cache, with a folder for each model


def gallery_of(
    model: Any, whose: str, records: Records, keys: tuple[str, ...], cache: Path, advance: Callable[[int], object]
) -> Gallery:
    """The records' vectors, in the order of their keys. Only those that the cache lacks are encoded; `told` hears of
    each more. `whose` tells the model's weights from others, whose vectors are left alone; damaged ones are replaced.
    """
    folder = cache / FOLDER / whose[:20]
    known = _kept(folder)
    there = set(known.keys)
    new = [row for row, key in enumerate(keys) if key not in there]
    advance(len(keys) - len(new))
    if new:
        more = Gallery.of_pictures(model, (records[row] for row in new), progress=advance)
        vectors = torch.cat([known.vectors, more.vectors]) if known.keys else more.vectors
        known = Gallery((*known.keys, *more.keys), vectors)
        known.save(folder)
    if known.keys == keys:
        return known
    place = {key: row for row, key in enumerate(known.keys)}
    return Gallery(keys, known.vectors[[place[key] for key in keys]])


def _kept(folder: Path) -> Gallery:
    try:
        return Gallery.load(folder)
    except CheckpointError:
        return Gallery((), torch.zeros(0, 0))
