"""Which sets of golden vectors are tried: those in this repository, and the folder that DIPTYCH_PARITY names."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from diptych.core import Batch, Sample, collate

COMMITTED = Path(__file__).parent / "data"
GIVEN = os.environ.get("DIPTYCH_PARITY")
if GIVEN and not Path(GIVEN).is_dir():
    raise NotADirectoryError(f"DIPTYCH_PARITY={GIVEN}: expected a folder of golden vectors")
SETS = {"committed": COMMITTED} | ({"given": Path(GIVEN)} if GIVEN else {})


@dataclass
class Official:
    """One set of golden vectors of a system. Nothing is hard-coded: sizes come from meta.json."""

    config: dict[str, Any]
    special: dict[str, int]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    grads: dict[str, Tensor]
    folder: Path
    vocabulary_file: Path

    @classmethod
    def of(cls, folder: Path, drawn: Path, grads: str = "grads_pretrain") -> Self:
        """Read the set in `folder`. Its vocabulary is written into the folder `drawn`."""
        meta = json.loads((folder / "meta.json").read_text())
        config, special = meta["config"], meta["special_token_ids"]
        words = {number: token for token, number in special.items()}
        if "[UNK]" not in special:
            words[next(number for number in range(config["vocab"]) if number not in words)] = "[UNK]"
        vocabulary = drawn / "vocab.txt"
        vocabulary.write_text("\n".join(words.get(number, f"word{number}") for number in range(config["vocab"])))
        read = (load_file(folder / f"{name}.safetensors") for name in ("inputs", "outputs", grads))
        return cls(config, special, *read, folder, vocabulary)

    def sample(self, case: str, row: int) -> Sample:
        raise NotImplementedError

    def batch(self, case: str) -> Batch:
        return collate([self.sample(case, row) for row in range(int(self.config["batch"]))])


def weights(system: Path, name: str, drawn: Path) -> Path:
    """A file of weights of a system's set. What data/README.md says how to draw is drawn into the folder `drawn`."""
    kept, told = system / f"{name}.safetensors", system / f"{name}.json"
    if kept.is_file() or not told.is_file():
        return kept
    path = drawn / kept.name
    if path.is_file():
        return path
    recipe = json.loads(told.read_text())
    generator = torch.Generator().manual_seed(recipe["seed"])
    tensors = {key: mean + std * torch.randn(shape, generator=generator) for key, shape, mean, std in recipe["tensors"]}
    rest = system / f"{name}.rest.safetensors"
    tensors |= load_file(rest) if rest.is_file() else {}
    total = sum(float(value.double().abs().sum()) for value in tensors.values())
    wanted = recipe["sum_of_magnitudes"]
    assert abs(total - wanted) <= 1e-6 * wanted, f"torch {torch.__version__} draws other numbers: {total}, not {wanted}"
    save_file(tensors, path)
    return path
