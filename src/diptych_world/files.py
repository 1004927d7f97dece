"""Write a Storybook to disk: pictures, and texts in the formats of public data sets.

pictures/train/000012.png
coco/captions_train.json  coco/instances_train.json  conceptual/web.tsv
vqa2/questions_train.json vqa2/annotations_train.json refcoco/refs_train.json
vcr/train.jsonl           vcr/train/000012.json       nlvr/train.jsonl
snli-ve/train.jsonl
storybook.json            the seed, and the number of complete scenes in each split
"""

import json
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
from diptych.runtime.files import replacing, text_of
from diptych.runtime.outputs import claim, edited
from diptych.runtime.processes import map_in_processes
from diptych_world import official
from diptych_world.book import Storybook, record
from diptych_world.render import render
from diptych_world.world import SPLITS

WORLD = 1  # version, incremented when drawings or texts change, so that a folder never mixes two versions
_PART = 64  # number of scenes that a process draws per task


def write(
    folder: Path,
    splits: Mapping[str, int],
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> None:
    """Write the first N scenes of each split. `splits`: split -> N.

    `progress` is called with the number of scenes just written.

    The files do not depend on `processes`. Each file is written atomically. If a call was stopped, a second call
    resumes: it writes only missing files. A larger N adds scenes. Raises DataError for an unknown split, a negative
    number, a folder that cannot be written, and a folder with another world version or seed.
    """
    for split, number in splits.items():
        if split not in SPLITS:
            raise DataError(f"Storybook has no split `{split}`; {nearest(split, SPLITS)}")
        if number < 0:
            raise DataError(f"found {number} scenes for the split {split}, expected 0 or more")
    try:
        claim(folder, "world")
        done = _complete(folder, seed)
        _refuse_edited(folder, seed, {one: done[one] for one in splits if done.get(one, splits[one]) != splits[one]})
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
                    if done.pop(split, None) is not None:  # if this is killed, a repeated call writes all texts again
                        _save_manifest(folder, seed, done)
                    for name, lines in _words(split, records):
                        _save_lines(folder / name, lines)
                    done[split] = number
                    _save_manifest(folder, seed, done)
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: cannot be written ({error.strerror}); free disk space and run the same "
            "command again to resume, or choose another folder"
        ) from error


def _complete(folder: Path, seed: int) -> dict[str, int]:
    """Return for each split the number of scenes that are complete in the folder."""
    if not (folder / MANIFEST).exists():
        return {}
    manifest = read_json(folder / MANIFEST).read(StorybookManifest)
    if (manifest.world, manifest.seed) != (WORLD, seed):
        raise DataError(
            f"{folder}: found a Storybook of world {manifest.world} and seed {manifest.seed}, expected world {WORLD} "
            f"and seed {seed}; pass another folder, or delete this one"
        )
    return manifest.splits


def _refuse_edited(folder: Path, seed: int, splits: Mapping[str, int]) -> None:
    """Raise OutputError if a text file of these splits, which would be written again, is not as it was written."""
    changed = []
    for split, number in splits.items():
        book = Storybook(seed, split, number)
        records = [record(book[one], _picture(folder, split, one)) for one in range(number)]
        for name, lines in _words(split, records):
            if (path := folder / name).exists() and text_of(path) != "".join(f"{line}\n" for line in lines):
                changed.append(name)
    if changed:
        raise edited(folder, changed)


def _picture(folder: Path, split: str, number: int) -> Path:
    return folder / "pictures" / f"{key_of(split, number)}.png"


def _pictures(folder: Path, part: tuple[Storybook, bool, range]) -> list[Record]:
    """Draw the missing pictures of a range of scenes. `part`: the split, True to return records, the range."""
    book, wanted, numbers = part
    records = []
    for number in numbers:
        path = _picture(folder, book.split, number)
        if not path.exists():
            png = BytesIO()
            # The paper texture is noise, which does not compress, so a higher level takes time and saves little space.
            Image.fromarray(render(book[number])).save(png, format="PNG", compress_level=1)
            _save(path, png.getvalue())
        if wanted:
            records.append(record(book[number], path))
    return records


def _words(split: str, records: list[Record]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the name and the lines of every text file of a split."""
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


def _save_manifest(folder: Path, seed: int, done: Mapping[str, int]) -> None:
    _save_lines(folder / MANIFEST, [json.dumps({"world": WORLD, "seed": seed, "splits": done})])


def _save_lines(path: Path, lines: Iterable[str]) -> None:
    _save(path, "".join(f"{line}\n" for line in lines).encode())


def _save(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Unlike `write_atomically`, it is not flushed to disk, because there are 12,000 small files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, flush=False) as unfinished:
        unfinished.write_bytes(content)
