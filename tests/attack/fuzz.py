"""Readers of foreign files given damaged ones: each may refuse with an error of Diptych's, and do nothing else."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from diptych.runtime.errors import DiptychError
from tests.attack.forks import HUNG, attempt
from tests.attack.kills import Broken

WORDS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, float("nan"), 10**20, "", "\x00", "\ud800", "a" * 5000, "../../x", "[b]\n\u2028",
    [], {}, [[]], [None], {"a": 1}, [1, 2, 3, 4], "1.png", 7, 0.5, "/dev/stdin", ".",
)  # fmt: skip
DEEP = "[" * 100_000
MEMORY = 3 * 2**30  # bytes that a reader may ask for beside what the process has
SECONDS = 20  # of the processor, that one file may take


@dataclass(frozen=True)
class Fuzzer:
    """`make` fills a folder with good files, `read` reads all of it, and `at_once` damaged ones are an attempt."""

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    at_once: int = 200


def fuzzed(fuzzer: Fuzzer, number: int) -> Broken | None:
    """One attempt, in a process of its own: what kills it is seen, and what takes all memory or time."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        ended = attempt(folder, (), partial(_damage_all, fuzzer, number, folder))
        if ended.code == 0:
            return None
        seeds = [line for line in ended.out.splitlines() if line.startswith(f"{fuzzer.name}/")]
        seed = seeds[-1] if seeds else f"{fuzzer.name}/{number}"
        how = "hung" if ended.code == HUNG else f"signal {-ended.code}" if ended.code < 0 else ended.last
        return Broken(fuzzer.name, seed, f"{seed}: {how}")


def _damage_all(fuzzer: Fuzzer, number: int, folder: Path) -> None:
    good, tried = folder / "good", folder / "tried"
    good.mkdir()
    fuzzer.make(good)
    shutil.copytree(good, tried)
    files = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file() and path.stat().st_size)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    try:
        fuzzer.read(tried)
    except DiptychError as error:  # then damaged ones would be refused for what is wrong with the good ones
        raise ValueError(f"the good files of {fuzzer.name} are refused: {error}") from error
    signal.signal(signal.SIGPROF, _too_long)
    for turn in range(fuzzer.at_once):
        seed = f"{fuzzer.name}/{number}/{turn}"
        print(seed, flush=True)
        rng = Random(seed)
        file = rng.choice(files)
        (tried / file).write_bytes(damaged(good / file, rng))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            fuzzer.read(tried)
        except DiptychError:
            pass
        except OSError as error:
            if error.filename is None:  # the command line says which file, and why
                raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.copyfile(good / file, tried / file)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"one file took more than {SECONDS} s of the processor")


def damaged(path: Path, rng: Random) -> bytes:
    """The content of a good file with one thing in it wrong: a value where its form is known, or bytes."""
    content = path.read_bytes()
    if rng.random() < 0.3:
        return corrupted(content, rng)
    match path.suffix:
        case ".json" if _is_one(content):
            return _text(DEEP if rng.random() < 0.02 else _dumped(mutated(json.loads(content), rng)))
        case ".json" | ".jsonl":
            lines = content.decode().splitlines()
            at = rng.randrange(len(lines))
            lines[at] = DEEP if rng.random() < 0.02 else _dumped(mutated(json.loads(lines[at]), rng))
            return _text("\n".join(lines))
        case ".p" | ".pkl":
            return pickle.dumps(_mutated_object(pickle.loads(content), rng), protocol=rng.choice((2, 4)))
        case ".bin" | ".pth" | ".pt" | ".model" if content.startswith((b"PK", b"\x80")):
            return _saved(path, rng)
        case _:
            return corrupted(content, rng)


def _is_one(content: bytes) -> bool:
    """A value, and not one a line."""
    return content.count(b"\n{") == 0


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _saved(path: Path, rng: Random) -> bytes:
    """A file of PyTorch's with a tensor of another shape, kind or name, or of no numbers."""
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as file:
        torch.save(_mutated_object(torch.load(path, weights_only=True), rng), file.name)
        return Path(file.name).read_bytes()


def mutated(value: Any, rng: Random) -> Any:
    """A value with one thing in it changed: another kind, another key, one more or less."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        return _mutated_object(value, rng)
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        change = rng.random()
        if change < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value, value[at]] if change < 0.4 else [*value[:at], mutated(value[at], rng), *value[at + 1 :]]
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim and rng.random() < 0.8:
        return _mutated_array(value, rng)
    return rng.choice(WORDS)


def _mutated_object(value: Any, rng: Random) -> Any:
    if not isinstance(value, dict) or not value:
        return mutated(value, rng)
    key, change = rng.choice(sorted(value, key=str)), rng.random()
    if change < 0.15:
        return {name: one for name, one in value.items() if name != key}
    if change < 0.25:
        other = rng.choice((str(key).upper(), "", f"{key}s"))
        return {(other if name == key else name): one for name, one in value.items()}
    return value | {key: mutated(value[key], rng)}


def _mutated_array(value: Any, rng: Random) -> Any:
    """Of an array of numpy's or torch's."""
    match rng.randrange(6):
        case 0:
            return value[:-1]
        case 1:
            return value.reshape(-1)
        case 2:
            return value[None]
        case 3:
            return value * float(rng.choice(("nan", "inf", "1e30")))
        case 4:
            return value.astype("S3") if isinstance(value, np.ndarray) else value.to(torch.complex64)
        case _:
            return value[:0]


def corrupted(content: bytes, rng: Random) -> bytes:
    """Bytes cut, flipped, doubled or put in; mostly near an end, where formats have their tables."""
    span = len(content) + 1
    at = rng.randrange(span)
    if span > 4000 and rng.random() < 0.6:
        at = rng.choice((rng.randrange(2000), span - 1 - rng.randrange(2000)))
    length = rng.randrange(1, 40)
    match rng.randrange(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes(rng.randrange(256) for _ in range(length)) + content[at + length :]
        case 2:
            return content[:at] + content[at : at + length] * 3 + content[at + length :]
        case _:
            return content[:at] + content[at + length :]
