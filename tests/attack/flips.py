"""Flipped bits: in any file that a verb left. What reads it must refuse it with a sentence, or give what it gave."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.attack.forks import HUNG, attempt
from tests.attack.kills import Broken
from tests.attack.verbs import TINY, digests

HARMLESS, SEEN = "harmless", "seen"


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
