"""Readers of foreign files given mutated ones: each may refuse with an error of Diptych's, and do nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from diptych.errors import DiptychError
from tests.attack.kills import Broken

AT_ONCE = 200  # records of one attempt
WORDS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, float("nan"), 10**20, "", "\x00", "\ud800", "a" * 5000, "../../x", "[b]\n\u2028",
    [], {}, [[]], [None], {"a": 1}, [1, 2, 3, 4], "1.png",
)  # fmt: skip


def mutated(value: Any, rng: Random) -> Any:
    """A value of JSON with one thing in it changed: another kind, another key, one more or less."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        return _mutated_object(value, rng)
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        change = rng.random()
        if change < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value, value[at]] if change < 0.4 else [*value[:at], mutated(value[at], rng), *value[at + 1 :]]
    return rng.choice(WORDS)


def _mutated_object(value: dict[str, Any], rng: Random) -> dict[str, Any]:
    key, change = rng.choice(sorted(value)), rng.random()
    if change < 0.15:
        return {name: one for name, one in value.items() if name != key}
    if change < 0.25:
        other = rng.choice((key.upper(), "", key + "s"))
        return {(other if name == key else name): one for name, one in value.items()}
    return value | {key: mutated(value[key], rng)}


def corrupted(content: bytes, rng: Random) -> bytes:
    """Bytes cut, flipped, doubled or put in."""
    at, length = rng.randrange(len(content) + 1), rng.randrange(1, 40)
    match rng.randrange(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes(rng.randrange(256) for _ in range(length)) + content[at + length :]
        case 2:
            return content[:at] + content[at : at + length] * 3 + content[at + length :]
        case _:
            return content[:at] + content[at + length :]


LINE = {
    "image": "1.png", "captions": ["a dog", "a red dog"], "question": "is it red", "answers": ["yes", "no"],
    "objects": [{"kind": "dog", "box": [1, 2, 3, 4]}], "expression": "the dog", "box": [1, 2, 3, 4], "split": "train",
    "statement": "there is a dog", "true": True, "choices": ["a", "b"], "answer": 0, "rationales": ["c", "d"],
    "rationale": 1,
}  # fmt: skip
COCO = {
    "images": [{"id": 1, "file_name": "1.png", "height": 4, "width": 4}],
    "annotations": [{"id": 1, "image_id": 1, "caption": "a dog"}],
    "info": {}, "licenses": [],
}  # fmt: skip
KARPATHY = {"images": [{"filename": "1.png", "split": "train", "imgid": 0, "cocoid": 1, "filepath": "",
                        "sentences": [{"raw": "a dog", "tokens": ["a", "dog"]}]}], "dataset": "coco"}  # fmt: skip


def _records(name: str, write: Callable[[Path, Random], Path]) -> Callable[[int], Broken | None]:
    """A reader of records, AT_ONCE mutated files an attempt."""
    from diptych.sources.formats import read

    def one(number: int) -> Broken | None:
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(AT_ONCE):
                seed = f"{name}/{number}/{turn}"
                try:
                    list(read(write(Path(folder), Random(seed))))
                except DiptychError:
                    pass
                except Exception as error:
                    return Broken(name, seed, f"{seed}: {type(error).__name__}: {str(error)[:150]}")
        return None

    return one


def _json_of(value: Any, name: str) -> Callable[[Path, Random], Path]:
    def write(folder: Path, rng: Random) -> Path:
        path = folder / name
        text = json.dumps(mutated(value, rng))
        content = text.encode("utf-8", "surrogatepass")
        path.write_bytes(corrupted(content, rng) if rng.random() < 0.2 else content)
        return path

    return write


def _features(number: int) -> Broken | None:
    """npz files of regions made elsewhere, corrupted."""
    from diptych.vision.features.npz import read_npz

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        arrays = {"features": np.ones((3, 4), np.float32), "boxes": np.array([[0, 0, 2, 2]] * 3, np.float32)}
        np.savez(path, **arrays)
        content = path.read_bytes()
        for turn in range(AT_ONCE):
            seed = f"npz/{number}/{turn}"
            path.write_bytes(corrupted(content, Random(seed)))
            try:
                read_npz(path, path.name)
            except DiptychError:
                pass
            except Exception as error:
                return Broken("npz", seed, f"{seed}: {type(error).__name__}: {str(error)[:150]}")
    return None


def _warc(number: int) -> Broken | None:
    """Records of the web, corrupted: counted, never raised."""
    from diptych.mining.warc import read

    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><img src=a.png alt='a dog'></html>"
    whole = b"".join(
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/%d\r\nContent-Type: application/http\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (n, len(page), page)
        for n in range(4)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.warc"
        for turn in range(AT_ONCE):
            seed = f"warc/{number}/{turn}"
            path.write_bytes(corrupted(whole, Random(seed)))
            try:
                list(read(path))
            except DiptychError:
                pass
            except Exception as error:
                return Broken("warc", seed, f"{seed}: {type(error).__name__}: {str(error)[:150]}")
    return None


FUZZERS: dict[str, Callable[[int], Broken | None]] = {
    "lines": _records("lines", _json_of(LINE, "mine.jsonl")),
    "COCO captions": _records("COCO captions", _json_of(COCO, "captions_train.json")),
    "Karpathy's split": _records("Karpathy's split", _json_of(KARPATHY, "dataset_coco.json")),
    "npz": _features,
    "WARC": _warc,
}
