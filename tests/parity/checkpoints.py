"""Random checkpoints with every key that an authors' model has, small or at its size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.data.store.tokens import SPECIAL
from diptych.runtime.errors import CheckpointError
from tests.support.checkpoints import load_checkpoint

# Real sizes and small ones that differ from each other, so that no mix-up fits.
SMALL = {768: 64, 3072: 96, 30522: 60, 2048: 24, 1601: 11, 3129: 13, 1024: 20, 512: 40}
Keys = dict[str, tuple[list[int], str]]


def sections(keys: Path) -> dict[str, Keys]:
    """By the first word of its heading: name -> sizes and type. Headings of one first word add up."""
    found: dict[str, Keys] = {}
    for line in keys.read_text().splitlines():
        if line.startswith("#"):
            here = found.setdefault(line.split()[1], {})
        elif line:
            name, shape, kind = line.split("\t")
            here[name] = ([] if shape == "scalar" else [int(n) for n in shape.split("x")], kind)
    return found


def random(keys: Keys, sizes: dict[int, int], half: bool) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for name, (shape, kind) in keys.items():
        small = [sizes.get(size, size) for size in shape]
        if kind == "int64":
            made[name] = torch.tensor(7)
        else:
            made[name] = torch.empty(small, dtype=torch.float16 if half else torch.float32).uniform_(-0.05, 0.05)
        if name.endswith("running_var"):
            made[name] = made[name].abs() + 0.5
    return made


def vocabulary(folder: Path, size: int) -> Path:
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(len(SPECIAL), size))]))
    return path


def check_refusals(
    system: type[Any],
    read: Callable[..., Any],
    folder: Path,
    theirs: dict[str, Tensor],
    kind: str,
    lost: dict[str, str],
) -> None:
    """Another system's file, a file that lacks tensors, a number of heads and a vocabulary that do not fit.

    `kind`: what the file should be. `lost`: a part of the names of the tensors that are left out -> the missing name.
    """
    path, words = folder / "model.pth", vocabulary(folder, 60)

    def refused(tensors: dict[str, Tensor], match: str, **sizes: int) -> None:
        torch.save(tensors, path)
        with pytest.raises(CheckpointError, match=match):
            load_checkpoint(system, read, path, words, **sizes)

    refused({"bert.embeddings.word_embeddings.weight": torch.ones(2)}, f"pass a {kind}, which has the tensor")
    for part, name in lost.items():
        refused({key: value for key, value in theirs.items() if part not in key}, f"has no {name}; copy it again")
    refused(theirs, "a width of 64, which is not divisible by 5 attention heads; pass heads", heads=5)
    words.write_text(words.read_text() + "\none-more")
    refused(theirs, "has 60 words, but the vocabulary file has 61; .* bert-base-uncased")
