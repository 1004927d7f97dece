"""Storybook on disk: pictures, and words in the forms of the public data sets.

pictures/train/000012.png
coco/captions_train.json  coco/instances_train.json  conceptual/web.tsv
vqa2/questions_train.json vqa2/annotations_train.json refcoco/refs_train.json
vcr/train.jsonl           vcr/train/000012.json       nlvr/train.jsonl
snli-ve/train.jsonl
storybook.json            the seed and how much of each split is complete
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from diptych.core import Record
from diptych.data.formats.parsing import key_of, read_json
from diptych.data.formats.storybook import MANIFEST, StorybookManifest
from diptych.runtime.errors import DataError, nearest
from diptych.runtime.files import aside
from diptych.runtime.processes import map_in_processes
from diptych.storybook import official
from diptych.storybook.book import Storybook, record
from diptych.storybook.render import render
from diptych.storybook.world import SPLITS

WORLD = 1  # changes with the drawings or the words, so that two worlds are never mixed in one folder
_PART = 64  # scenes that a process draws at a time


def write(
    folder: Path,
    splits: Mapping[str, int],
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> None:
    """So many scenes of each split, by so many processes. `progress` hears how many more are done.

    What is written is the same whatever their number. Every file appears whole or not at all. A second call goes on
    where the first was stopped: it draws only what is missing, and a larger number adds scenes.
    """
    for split, number in splits.items():
        if split not in SPLITS:
            raise DataError(f"found the split `{split}`, wanted one of Storybook's: {nearest(split, SPLITS)}")
        if number < 0:
            raise DataError(f"found {number} scenes for {split}, wanted 0 or more")
    try:
        done = _begun(folder, seed)
        parts = [
            (Storybook(seed, split, number), done.get(split) != number, range(first, min(first + _PART, number)))
            for split, number in splits.items()
            for first in range(0, number, _PART)
        ]
        with closing(map_in_processes(partial(_pictures, folder), parts, max(1, min(processes, len(parts))))) as drawn:
            for split, number in splits.items():
                records: list[Record] = []
                for first in range(0, number, _PART):
                    records += next(drawn)
                    if progress is not None:
                        progress(min(_PART, number - first))
                if done.get(split) != number:
                    _words(folder, split, records)
                    done[split] = number
                    _save(folder / MANIFEST, {"world": WORLD, "seed": seed, "splits": done})
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: cannot be written ({error.strerror}); make room or give another folder, "
            "then run the same command again: it goes on from here"
        ) from error


def _begun(folder: Path, seed: int) -> dict[str, int]:
    """How much of each split an earlier call finished."""
    if not (folder / MANIFEST).exists():
        return {}
    manifest = read_json(folder / MANIFEST).read(StorybookManifest)
    found = manifest.world, manifest.seed
    if found != (WORLD, seed):
        raise DataError(
            f"{folder}: found a Storybook of world {found[0]} and seed {found[1]}, wanted world {WORLD} and "
            f"seed {seed}; give another folder, or delete this one"
        )
    return manifest.splits


def _pictures(folder: Path, part: tuple[Storybook, bool, range]) -> list[Record]:
    """Draws the pictures of this part of a split that are not there yet; all its records, where they are asked for."""
    book, tell, numbers = part
    records = []
    for number in numbers:
        path = folder / "pictures" / f"{key_of(book.split, number)}.png"
        if not path.exists():
            unfinished = _unfinished(path)
            # The paper's grain does not compress: a harder effort costs time and gains little.
            Image.fromarray(render(book[number])).save(unfinished, format="PNG", compress_level=1)
            os.replace(unfinished, path)
        if tell:
            records.append(record(book[number], path))
    return records


def _words(folder: Path, split: str, records: list[Record]) -> None:
    _save(folder / "coco" / f"instances_{split}.json", official.instances(records))
    if split == "web":
        lines = (f"{one.captions[0]}\t{official.file_of(one)}" for one in records)
        _save_lines(folder / "conceptual" / "web.tsv", lines)
        return
    asked, answered = official.questions(records, split)
    _save(folder / "coco" / f"captions_{split}.json", official.captions(records))
    _save(folder / "vqa2" / f"questions_{split}.json", asked)
    _save(folder / "vqa2" / f"annotations_{split}.json", answered)
    _save(folder / "refcoco" / f"refs_{split}.json", official.refs(records))
    _save_lines(folder / "vcr" / f"{split}.jsonl", map(json.dumps, official.vcr_lines(records)))
    for one in records:
        if one.choices:
            _save(folder / "vcr" / f"{one.key}.json", official.vcr_metadata(one))
    _save_lines(folder / "nlvr" / f"{split}.jsonl", map(json.dumps, official.statements(records)))
    _save_lines(folder / "snli-ve" / f"{split}.jsonl", map(json.dumps, official.hypotheses(records)))


def _unfinished(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return aside(path)


def _save(path: Path, value: Any) -> None:
    _save_lines(path, [json.dumps(value)])


def _save_lines(path: Path, lines: Iterable[str]) -> None:
    unfinished = _unfinished(path)
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    os.replace(unfinished, path)
