"""Random checkpoints with every key that an authors' model has, small or at its size."""

from pathlib import Path

import torch
from torch import Tensor

from diptych.data.store.tokens import SPECIAL

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
