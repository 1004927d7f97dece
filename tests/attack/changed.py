"""A verb is given twice, and in between one of its inputs is changed in place, as by a user who mends his data.

The second result is that of the changed input, as a first run on it gives it, or the verb refuses: nothing old is
returned in silence. What replaces an input has its names, and is as old as it was (`cp -a`), or is new.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diptych.runtime.files import MARKER
from tests.attack.forks import Ended, attempt
from tests.attack.kills import Broken, copied
from tests.attack.verbs import TINY, digests, make_world
from tests.support import toy

OTHER = 1  # seed of the world that replaces inputs
IMAGE = "world/pictures/train/000003.png"
PRETRAIN = ("pretrain", "unified-vlp/small/pretrain", "--out", "out", *TINY)
TUNE = ("finetune", "caption", "--out", "out", *TINY)
GIVEN = ("--features", "features")
MINE = ("mine", "run", "web/warc", "--out", "out", "--offline", "--skip-nsfw-check", "--processes", "1")
SEARCH = ("search", "a dog", "--images", "pictures", "--model", "retriever", "--cache", "cache")
SECONDS = re.compile(r"\d+(\.\d+)? ?(ms|s|k?B/s|MB/s|samples/s)\b")


@dataclass(frozen=True)
class Repeated:
    """A command, and what it reads: each of these is changed alone. Its output is `out`, or what it prints."""

    arguments: tuple[str, ...]
    inputs: tuple[str, ...]


REPEATED = (
    Repeated(("extract", "world", "--out", "out", "--detector", "detector", "--processes", "1"),
             ("world", IMAGE, "world/coco", "detector")),
    Repeated(("extract", "mine.jsonl", "--out", "out", "--detector", "given", *GIVEN),
             ("mine.jsonl", "features", "features/2.npz")),
    Repeated(("tokenizer", "train", "--data", "store", "--text", "words.txt", "--out", "out", "--size", "200"),
             ("store", "words.txt")),
    Repeated((*PRETRAIN, "--data", "store"), ("store",)),
    Repeated((*PRETRAIN, "--data", "world", "--detector", "detector"), ("world", IMAGE, "detector")),
    Repeated((*PRETRAIN, "--data", "a=store", "--data", "b=start/../store", "--set", "data.split=a+b"), ("store",)),
    Repeated((*PRETRAIN, "--data", "mine.jsonl", *GIVEN, "--set", "data.split=train"),
             ("mine.jsonl", "features", "features/2.npz")),
    Repeated(("pretrain", "vl-bert/small/pretrain", "--out", "out", *TINY, "--data", "store", "--set",
              "data.text=words.txt", "--set", "data.text_words=8"), ("store", "words.txt")),
    Repeated((*TUNE, "--data", "store", "--model", "start"), ("store", "start")),
    Repeated((*TUNE, "--data", "world", "--model", "start"), ("world", IMAGE, "world/coco", "start")),
    Repeated(("finetune", "vqa", "--out", "out", *TINY, "--data", "store", "--model", "start"), ("store", "start")),
    Repeated(("augment", "store", "--out", "out", "--model", "captioner", "--num-captions", "1", "--max-words", "4"),
             ("store", "captioner")),
    Repeated(("evaluate", "--model", "captioner", "--data", "store", "--out", "out"), ("store", "captioner")),
    Repeated(("evaluate", "--model", "captioner", "--data", "world", "--out", "out"), ("world", "captioner")),
    Repeated(("submit", "--format", "coco", "--model", "captioner", "--data", "store", "--out", "out"),
             ("store", "captioner")),
    Repeated(("rank", "--model", "retriever", "--data", "store", "--pairs", "out"), ("store", "retriever")),
    Repeated(("compare", "captioner", "start/../captioner", "--data", "store"), ("store", "captioner")),
    Repeated(("caption", "0.png", "1.png", "--model", "captioner", "--out", "out"), ("0.png", "captioner")),
    Repeated(("caption", "pictures", "--model", "captioner", "--show", "out"), ("pictures", "pictures/1.png")),
    Repeated(SEARCH, ("pictures", "pictures/1.png", "retriever")),
    Repeated(("match", "0.png", "a dog", "--model", "retriever"), ("0.png", "retriever")),
    Repeated(("plot", "start", "captioner", "--out", "out.svg"), ("start",)),
    Repeated(("push", "captioner", "me/kites", "--dry-run", "--out", "out"), ("captioner",)),
    Repeated(("export", "captioner", "--out", "out", "--format", "torch"), ("captioner",)),
    Repeated(("check", "world"), ("world", IMAGE)),
    Repeated(MINE, ("web/warc",)),
    Repeated((*MINE, "--words", "words.txt"), ("words.txt",)),
    Repeated((*MINE, "--realism", "judge"), ("judge", "judge/weights.safetensors")),
    Repeated(("mine", "run", "mine.jsonl", *MINE[3:], "--set", "rules.sides=off"), ("mine.jsonl", "2.png")),
)  # fmt: skip


def cases() -> list[tuple[Repeated, str, bool]]:
    """Each command, with each of its inputs, which is replaced by a newer one; then all again, by an older one."""
    return [(one, name, new) for new in (True, False) for one in REPEATED for name in one.inputs]


def make_inputs(folder: Path, seed: int) -> None:
    """Add the inputs that the other attacks do not need to a world of this seed."""
    import numpy as np

    (folder / "features").mkdir()
    for number in range(4):
        rng, boxes = np.random.default_rng(number + 10 * seed), np.array([[0, 0, 9, 9], [5, 5, 20, 20]], np.float32)
        features = rng.random((2, 8), dtype=np.float32)
        np.savez(folder / "features" / f"{number}.npz", features=features, boxes=boxes, width=64, height=64)
    if seed:  # stores and models were made with the same detector, so that they fit those of the other world
        attempt(folder, (), partial(_another_detector, folder))
    attempt(folder, ("mine", "judge", "classes", "--out", "judge"))
    (folder / "words.txt").write_text("".join(f"a dog number {n} runs{'.test' * seed}\n" for n in range(40)))


def _another_detector(folder: Path) -> None:
    detector = toy.detector(64)
    next(detector.network.parameters()).data += 1
    shutil.rmtree(folder / "detector")
    (folder / "detector").mkdir()
    detector.save(folder / "detector")


def two_worlds(world: Path, place: Path) -> list[Path]:
    """The world with more inputs, and one of another seed."""
    worlds = [place / "world", place / "other"]
    shutil.copytree(world, worlds[0], symlinks=True)
    make_world(worlds[1], OTHER)
    for seed, one in enumerate(worlds):
        make_inputs(one, seed)
    return worlds


def stale(number: int, worlds: list[Path], place: Path) -> Broken | str:
    """One of `cases`."""
    command, name, new = cases()[number % len(cases())]
    folder = copied(worlds[0], place)
    if not (first := _attempt(folder, command)).clean or first.code:
        return Broken("changed", str(number), f"{_shown(command, name, new)}: code {first.code}, {first.last}")
    before = _result(folder, first)
    _replace(folder, worlds[1], name, new)
    second = _attempt(folder, command)
    found = _result(folder, second)
    folder = copied(worlds[0], place)
    _replace(folder, worlds[1], name, new)
    fresh = _attempt(folder, command)
    wanted = _result(folder, fresh)
    if not second.clean:
        how = f"code {second.code}, {second.last}"
    elif second.code:
        return "refused"
    elif wanted == before:
        return "harmless"
    elif found == wanted:
        return "equal"
    else:
        differ = sorted(one for one in found | wanted if found.get(one) != wanted.get(one))
        how = f"{'the old' if found == before else 'another'} result: {', '.join(differ[:3])}"
    return Broken("changed", str(number), f"{_shown(command, name, new)}: {how}")


def _shown(command: Repeated, name: str, new: bool) -> str:
    words = [word for word in command.arguments if word not in TINY]
    return f"diptych {' '.join(words)}, {name} replaced by {'a newer' if new else 'an older'} one"


def _attempt(folder: Path, command: Repeated) -> Ended:
    return attempt(folder, command.arguments, partial(os.environ.__setitem__, "XDG_CACHE_HOME", str(folder / ".cache")))


def _replace(folder: Path, world: Path, name: str, new: bool) -> None:
    target = folder / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    shutil.copytree(world / name, target, symlinks=True) if (world / name).is_dir() else shutil.copy2(
        world / name, target
    )
    for path in (target, *target.rglob("*")) if new else ():
        os.utime(path)


def _result(folder: Path, ended: Ended) -> dict[str, str]:
    made = {f"{path.name}/{name}": digest for path in _outputs(folder) for name, digest in digests(path).items()}
    # A marker also lists earlier files, and the work of mining keeps shards of earlier settings.
    made = {name: digest for name, digest in made.items() if not name.endswith(MARKER) and "out/work/" not in name}
    return made or {"printed": SECONDS.sub("", ended.out)}


def _outputs(folder: Path) -> Iterator[Path]:
    yield from (path for path in (folder / "out", folder / "out.svg") if path.exists())
