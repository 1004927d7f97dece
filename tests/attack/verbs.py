"""The verbs that write, each at a size of a second, in a small world that is made once and copied for each attempt."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.attack.forks import attempt
from tests.support import toy

TINY = tuple(
    word
    for key, value in {
        "model.width": 16, "model.heads": 2, "model.layers": 1, "model.ffn": 16, "model.max_regions": 8,
        "model.positions": 32, "training.batch": 4, "training.steps": 4, "training.validate_every": 2,
        "training.checkpoint_every": 2, "training.log_every": 1, "data.validation_records": 2, "data.max_words": 12,
        "training.threads": 1, "training.loading_threads": 1, "training.precision": "fp32",
    }.items()
    for word in ("--set", f"{key}={value}")
)  # fmt: skip
LEFT_OUT = (".lock", "metrics.jsonl", "log.txt", "stages.json", "fetched.json", "report.html", "funnel.json")


@dataclass(frozen=True)
class Verb:
    """`writes` is what it makes, below the folder that it runs in; given again, it must make the same. One that `saves`
    ends a SIGTERM with what it has; the others write one file at their end, and SIGTERM ends them."""

    name: str
    arguments: tuple[str, ...]
    writes: str
    saves: bool = True


def make_detector(folder: Path) -> None:
    (folder / "detector").mkdir()
    toy.detector(64).save(folder / "detector")


def make_world(folder: Path, seed: int = 0) -> None:
    """Pictures with lines, a store, a detector and two models of nearly nothing, by the verbs themselves.

    Worlds of other seeds have other content in files of the same names.
    """
    folder.mkdir(parents=True)
    attempt(folder, (), partial(make_detector, folder))
    for arguments in (
        ("storybook", "write", "--out", "world", "--web", "0", "--train", "12", "--val", "4", "--test", "4",
         "--test-rare", "0",
         "--processes", "1", "--seed", str(seed)),
        ("extract", "world", "--out", "store", "--detector", "detector", "--processes", "1"),
        ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "start", *TINY),
        ("finetune", "caption", "--data", "store", "--model", "start", "--out", "captioner", *TINY),
        ("finetune", "retrieval", "--data", "store", "--model", "start", "--out", "retriever", *TINY),
        ("storybook", "web", "--out", "web", "--pages", "24", "--processes", "1", "--seed", str(seed)),
    ):  # fmt: skip
        ended = attempt(folder, arguments)
        if ended.code != 0:
            raise RuntimeError(f"diptych {' '.join(arguments)}: {ended.code}\n{ended.error}")
    lines = [{"image": f"{n}.png", "captions": [f"a picture of number {n + seed}"]} for n in range(4)]
    for number, picture in enumerate(sorted((folder / "world").rglob("*.png"))[:4]):
        shutil.copy(picture, folder / f"{number}.png")
        for name in ("pictures", "classes/safe", "classes/others"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, folder / name / f"{number}.png")
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


VERBS = (
    Verb("storybook write", ("storybook", "write", "--out", "drawn", "--web", "2", "--train", "3", "--val", "1",
         "--test", "1",
                             "--test-rare", "0", "--processes", "1"), "drawn"),
    Verb("extract", ("extract", "world", "--out", "again", "--detector", "detector", "--processes", "1"), "again"),
    Verb("tokenizer train", ("tokenizer", "train", "--data", "store", "--out", "words", "--size", "200"), "words"),
    Verb("pretrain", ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "run", *TINY), "run"),
    Verb("finetune", ("finetune", "vqa", "--data", "store", "--model", "start", "--out", "run", *TINY), "run"),
    Verb("augment", ("augment", "store", "--out", "more", "--model", "captioner", "--num-captions", "1",
         "--max-words", "4"),
         "more"),
    Verb("evaluate", ("evaluate", "--model", "captioner", "--data", "store", "--out", "said.json"),
         "said.json", False),
    Verb("caption", ("caption", "0.png", "1.png", "--model", "captioner", "--out", "lines.txt"), "lines.txt",
         False),
    Verb("mine run", ("mine", "run", "web/warc", "--out", "mined", "--offline", "--skip-nsfw-check",
         "--processes", "1"),
         "mined"),
)  # fmt: skip


def digests(path: Path) -> dict[str, str]:
    """Of every file below it, but locks and what holds seconds. Of a store, of its records in order: a stop makes what
    there is a shard."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    shown = {one: (one.relative_to(path).as_posix() if one != path else one.name) for one in files}
    stores = {one.parent for one in files if one.name == "store.json"}
    kept = {
        name: _digest(one) for one, name in shown.items() if one.name not in LEFT_OUT and not _is_shard(one, stores)
    }
    return kept | {f"records of {store.relative_to(path)}": records_of(store) for store in stores}


def _is_shard(path: Path, stores: set[Path]) -> bool:
    return path.parent in stores and (path.name in ("store.json", "inputs.json") or path.name.startswith("shard-"))


def records_of(folder: Path) -> str:
    """A digest of all that a store holds, in order."""
    from diptych.data.store.record_json import record_to_json
    from diptych.data.store.store import Store

    store, hashed = Store(folder), hashlib.sha256()
    for record in map(store.record, range(len(store))):
        assert record.regions is not None
        hashed.update(repr((record_to_json(record), record.regions.size)).encode())
        for name, value in sorted(record.regions.tensors().items()):
            hashed.update(name.encode() + value.numpy().tobytes())
    return hashed.hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
