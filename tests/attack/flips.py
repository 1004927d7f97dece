"""Flipped bits: in any file that a verb left. What reads it must refuse it with a sentence, or pass what it gave."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import torch

from diptych.runtime.errors import DiptychError
from tests.attack.forks import HUNG, attempt
from tests.attack.kills import Broken
from tests.attack.verbs import TINY, digests, records_of

HARMLESS, SEEN = "harmless", "seen"
FLIPS = 100  # at once, where a folder is opened in a process for all of them


@dataclass(frozen=True)
class Reader:
    """A command that reads all of a folder; what it says and writes is compared."""

    name: str
    reads: str
    arguments: tuple[str, ...]
    writes: str = ""


READERS = (
    Reader("a store, checked", "store", ("check", "store", "--json")),
    Reader("a store, trained on", "store",
           ("finetune", "caption", "--data", "store", "--model", "start", "--out", "flipped", *TINY), "flipped/model"),
    Reader("a model, trained on", "start/model",
           ("finetune", "caption", "--data", "store", "--model", "start", "--out", "flipped", *TINY), "flipped/model"),
    Reader("a run, gone on with", "start",
           ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "start", *TINY, "--set",
            "training.steps=6"), "start/model"),
    Reader("a model, checked", "captioner/model", ("check", "captioner", "--json")),
    Reader("a model that captions", "captioner/model", ("caption", "0.png", "--model", "captioner", "--json")),
    Reader("checkpoints", "start/checkpoints",
           ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "start", *TINY, "--set",
            "training.steps=6"), "start/model"),
)  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """What a reader says and writes of an unhurt folder."""

    code: int
    out: str
    files: dict[str, str]


def whole_of(reader: Reader, world: Path, place: Path) -> Whole:
    found = _read(reader, _copy(world, place))
    if found.code != 0:
        raise RuntimeError(f"{reader.name}: {found.out}")
    return found


def flipped(reader: Reader, seed: str, whole: Whole, world: Path, place: Path) -> str | Broken:
    """HARMLESS, SEEN, or how it broke."""
    rng, folder = Random(seed), _copy(world, place)
    files = sorted(one for one in (folder / reader.reads).rglob("*") if one.is_file() and one.stat().st_size)
    file = rng.choice(files)
    content = bytearray(file.read_bytes())
    at, bit = rng.randrange(len(content)), rng.randrange(8)
    content[at] ^= 1 << bit
    file.write_bytes(content)
    where = f"{file.relative_to(folder)} byte {at} bit {bit}"
    ended = attempt(folder, reader.arguments)
    if ended.code == HUNG or not ended.clean:
        return Broken(
            reader.name, seed, f"{where}: code {ended.code}, {(ended.error.strip().splitlines() or [''])[-1][:200]}"
        )
    if ended.code != 0:
        return SEEN
    files_now = digests(folder / reader.writes) if reader.writes else {}
    same = (ended.out, files_now) == (whole.out, whole.files)
    return HARMLESS if same or "damaged" in ended.error else Broken(reader.name, seed, f"{where}: unseen")


def _copy(world: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(world, place, symlinks=True))


def _read(reader: Reader, folder: Path) -> Whole:
    ended = attempt(folder, reader.arguments)
    files = digests(folder / reader.writes) if reader.writes and ended.code == 0 else {}
    return Whole(ended.code, ended.out if ended.code == 0 else ended.error, files)


@dataclass(frozen=True)
class Opened:
    """What opens a folder in this process; `of` gives a digest of all that it says, and names damage that it passes."""

    name: str
    reads: str
    of: Callable[[Path], str]


def flipped_inside(opened: Opened, world: Path, number: int) -> Broken | str | None:
    """FLIPS flips, one after the other, in one process."""
    with tempfile.TemporaryDirectory(prefix="flips-") as name:
        folder = Path(name)
        shutil.copytree(world / opened.reads, folder / "it")
        ended = attempt(folder, (), partial(_flip_all, opened, number, folder / "it"))
        lines = ended.out.splitlines()
        if ended.code != 0:
            return Broken(
                opened.name, str(number), f"{lines[-1] if lines else number}: code {ended.code}, {ended.last}"
            )
        unseen = [line for line in lines if line.endswith(": unseen")]
        return Broken(opened.name, str(number), "; ".join(unseen)) if unseen else None


def _flip_all(opened: Opened, number: int, folder: Path) -> None:
    whole = opened.of(folder)
    for turn in range(FLIPS):
        rng = Random(f"{opened.name}/{number}/{turn}")
        files = sorted(one for one in folder.rglob("*") if one.is_file() and one.stat().st_size)
        file = rng.choice(files)
        good = file.read_bytes()
        at, bit = rng.randrange(len(good)), rng.randrange(8)
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :])
        where = f"{turn}: {file.relative_to(folder)} byte {at} bit {bit}"
        print(where, flush=True)
        try:
            if opened.of(folder) != whole:
                print(f"{where}: unseen", flush=True)
        except DiptychError:
            pass
        file.write_bytes(good)


def _of_store(folder: Path) -> str:
    from diptych.data.store.store import Store

    Store(folder).detector()
    return repr(Store(folder).contract) + records_of(folder)


def _of_model(folder: Path) -> str:
    from diptych.runs.folder import open_model

    made = open_model(folder)
    assert made.detector is not None
    parts = (made.architecture, made.contract, made.recipe, made.answers, made.tokens.encode("a dog and a bird"))
    return hashlib.sha256(repr(parts).encode()).hexdigest() + _of_weights(made.model) + _of_detector(made.detector)


def _of_detector(folder: Path) -> str:
    from diptych.vision.detectors.load import load_detector

    detector = load_detector(folder)
    return repr(detector.contract) + _of_weights(detector.network)  # type: ignore[attr-defined]


def _of_weights(module: object) -> str:
    from diptych.models.weights import digest

    return digest(module, "")  # type: ignore[arg-type]


def _of_checkpoints(folder: Path) -> str:
    """The last one as it was; one before it is a warning, and no harm."""
    from diptych.training.checkpoint import load_latest, steps_in

    found, warnings = load_latest(folder)
    if warnings:
        raise DiptychError(warnings[0])
    assert found is not None
    assert found.step == max(steps_in(folder))
    hashed = hashlib.sha256(repr(found.state).encode())
    for group, tensors in sorted(found.tensors.items()):
        for key, tensor in sorted(tensors.items()):
            hashed.update(
                f"{group} {key} {tensor.dtype}".encode()
                + tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
            )
    return hashed.hexdigest()


OPENED = (
    Opened("a store, read", "store", _of_store),
    Opened("a model, opened", "captioner/model", _of_model),
    Opened("a detector, opened", "detector", _of_detector),
    Opened("checkpoints, loaded", "start/checkpoints", _of_checkpoints),
)
