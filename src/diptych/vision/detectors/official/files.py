"""Read the weights file of an official detector: its tensors, and the text of its settings."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from diptych.runtime import unpickle
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors, read_weights


def read_file(path: Path) -> tuple[Tensors, str | None]:
    """Return the tensors by name, and the text of Detectron's settings (`cfg`), or None if the file has none.

    Raises CheckpointError for other files. No Python code in a pickle is run.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "missing"
        raise CheckpointError(f"{path} is {kind}; expected a detector's official .pkl, .pth, .bin or .safetensors")
    if path.suffix == ".json":
        raise CheckpointError(
            f"{path} holds no weights; pass a detector's weights (a TensorFlow.js graph model as tfjs:{path})"
        )
    if path.suffix != ".pkl":
        return read_weights(path), None
    held = unpickle.load(path)
    inner = next((held[name] for name in ("blobs", "model") if isinstance(held, dict) and name in held), held)
    if not isinstance(inner, Mapping) or not any(isinstance(value, np.ndarray) for value in inner.values()):
        raise CheckpointError(f"{path} holds no dict of arrays; expected `blobs` (Detectron) or `model` (airsplay)")
    arrays = {str(k): np.asarray(v) for k, v in inner.items() if isinstance(v, np.ndarray | np.generic)}
    wrong = next((name for name, value in arrays.items() if value.dtype.kind not in "fiu"), None)
    if wrong is not None:
        raise CheckpointError(f"{path}: {wrong} is an array of {arrays[wrong].dtype}, expected numbers; copy it again")
    cfg = held.get("cfg")
    return {name: torch.from_numpy(value) for name, value in arrays.items()}, cfg if isinstance(cfg, str) else None
