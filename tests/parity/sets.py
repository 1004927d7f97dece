"""Which sets of golden vectors are tried: those in this repository, and the folder that DIPTYCH_PARITY names."""

import json
import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

COMMITTED = Path(__file__).parent / "data"
GIVEN = os.environ.get("DIPTYCH_PARITY")
if GIVEN and not Path(GIVEN).is_dir():
    raise NotADirectoryError(f"DIPTYCH_PARITY={GIVEN}: expected a folder of golden vectors")
SETS = {"committed": COMMITTED} | ({"given": Path(GIVEN)} if GIVEN else {})


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
