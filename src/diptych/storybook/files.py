"""Storybook on disk: pictures, and words in the formats of the public data sets.

pictures/train/000012.png
coco/captions_train.json  coco/instances_train.json  conceptual/web.tsv
vqa2/questions_train.json vqa2/annotations_train.json refcoco/refs_train.json
vcr/train.jsonl           vcr/train/000012.json       nlvr/train.jsonl
snli-ve/train.jsonl
storybook.json            the seed, and the number of scenes that are complete in each split
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path

from PIL import Image

from diptych.core import Record
from diptych.data.formats.parsing import key_of, read_json
from diptych.data.formats.storybook import MANIFEST, StorybookManifest
from diptych.runtime.errors import DataError, nearest
from diptych.runtime.files import aside
from diptych.runtime.outputs import claim
from diptych.runtime.processes import map_in_processes
from diptych.storybook import official
from diptych.storybook.book import Storybook, record
from diptych.storybook.render import render
from diptych.storybook.world import SPLITS

WORLD = 1  # incremented when drawings or words change, so that two worlds are never mixed in one folder
_PART = 64  # scenes that a process draws at a time


def write(
    folder: Path,
    splits: Mapping[str, int],
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> None:
    """Write the first N scenes of each split in `splits` (split -> N). `progress` gets the number of scenes just done.

    The bytes do not depend on `processes`. Every file is written completely or not at all. A second call resumes a
    stopped one: it draws only what is missing, and a larger N adds scenes. Raises DataError for a wrong split or
    number, a folder that cannot be written, and a folder with another world or seed.
    """
    for split, number in splits.items():
        if split not in SPLITS:
            raise DataError(f"found the split `{split}`, expected one of Storybook's: {nearest(split, SPLITS)}")
        if number < 0:
            raise DataError(f"found {number} scenes for {split}, expected 0 or more")
    try:
        claim(folder, "world")
        done = _complete(folder, seed)
        parts = [
            (Storybook(seed, split, number), done.get(split) != number, range(first, min(first + _PART, number)))
            for split, number in splits.items()
            for first in range(0, number, _PART)
        ]
        count = max(1, min(processes, len(parts)))
        with closing(map_in_processes(partial(_pictures, folder), parts, count, (__name__,))) as drawn:
            for split, number in splits.items():
                records: list[Record] = []
                for first in range(0, number, _PART):
                    records += next(drawn)
                    if progress is not None:
                        progress(min(_PART, number - first))
                if done.get(split) != number:
                    for name, lines in _words(split, records):
                        _save_lines(folder / name, lines)
                    done[split] = number
                    _save_lines(folder / MANIFEST, [json.dumps({"world": WORLD, "seed": seed, "splits": done})])
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: cannot be written ({error.strerror}); free space or choose another folder, "
            "then run the same command again: it resumes from here"
        ) from error


def _complete(folder: Path, seed: int) -> dict[str, int]:
    """Return the number of complete scenes of each split in the folder."""
    if not (folder / MANIFEST).exists():
        return {}
    manifest = read_json(folder / MANIFEST).read(StorybookManifest)
    if (manifest.world, manifest.seed) != (WORLD, seed):
        raise DataError(
            f"{folder}: found a Storybook of world {manifest.world} and seed {manifest.seed}, expected world {WORLD} "
            f"and seed {seed}; pass another folder, or delete this one"
        )
    return manifest.splits


def _pictures(folder: Path, part: tuple[Storybook, bool, range]) -> list[Record]:
    """Draw the missing pictures of a part of a split. Return the part's records if its flag is set, else []."""
    book, wanted, numbers = part
    records = []
    for number in numbers:
        path = folder / "pictures" / f"{key_of(book.split, number)}.png"
        if not path.exists():
            png = BytesIO()
            # The paper's grain does not compress: a higher level costs time and gains little.
            Image.fromarray(render(book[number])).save(png, format="PNG", compress_level=1)
            _save(path, png.getvalue())
        if wanted:
            records.append(record(book[number], path))
    return records


def _words(split: str, records: list[Record]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the name and the lines of every file with words of a split."""
    yield f"coco/instances_{split}.json", [json.dumps(official.instances(records))]
    if split == "web":
        yield "conceptual/web.tsv", (f"{one.captions[0]}\t{official.file_of(one)}" for one in records)
        return
    questions, answers = official.questions(records, split)
    yield f"coco/captions_{split}.json", [json.dumps(official.captions(records))]
    yield f"vqa2/questions_{split}.json", [json.dumps(questions)]
    yield f"vqa2/annotations_{split}.json", [json.dumps(answers)]
    yield f"refcoco/refs_{split}.json", [json.dumps(official.refs(records))]
    yield f"vcr/{split}.jsonl", map(json.dumps, official.vcr_lines(records))
    yield from ((f"vcr/{one.key}.json", [json.dumps(official.vcr_metadata(one))]) for one in records if one.choices)
    yield f"nlvr/{split}.jsonl", map(json.dumps, official.statements(records))
    yield f"snli-ve/{split}.jsonl", map(json.dumps, official.hypotheses(records))


def _save_lines(path: Path, lines: Iterable[str]) -> None:
    _save(path, "".join(f"{line}\n" for line in lines).encode())


def _save(path: Path, content: bytes) -> None:
    """Write a file completely or not at all. Unlike `write_atomically`, do not flush each of 12,000 small files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = aside(path)
    unfinished.write_bytes(content)
    os.replace(unfinished, path)
