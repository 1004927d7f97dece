"""Detector folders. `detector.json` describes the detector, and `detector.safetensors` holds its weights.

`detector.json` holds the sha256 of the weights, and in `check` the sha256 of its other values. So any changed byte is
detected. Older folders without `check` and `format` can still be read.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError, explained
from diptych.runtime.files import bytes_of, parse_json, sha256_of_json, text_of, write_atomically
from diptych.runtime.weight_files import compact, read_weights

DETECTOR, WEIGHTS = "detector.json", "detector.safetensors"
FORMAT = 2  # version of detector.json; version 1 had neither `check` nor `format`
M = TypeVar("M", bound=nn.Module)


def packed(module: nn.Module) -> bytes:
    """Serialise the weights of a module as safetensors. Equal weights give equal bytes."""
    return save(compact(module.state_dict()))


def fingerprint(module: nn.Module) -> str:
    """Return the sha256 that the module's weights file would have, without writing the file."""
    return hashlib.sha256(packed(module)).hexdigest()


def write_detector(folder: Path, described: Mapping[str, Any], module: nn.Module | None = None) -> None:
    """Write a detector's folder. `detector.json` is written last, so a folder that has it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {**described, "format": FORMAT}
    if module is not None:
        content = packed(module)
        write_atomically(folder / WEIGHTS, content)
        values["sha256"] = hashlib.sha256(content).hexdigest()
    values["check"] = sha256_of_json(values)
    write_atomically(folder / DETECTOR, (json.dumps(values, indent=1) + "\n").encode())


def read_detector(folder: Path) -> dict[str, Any]:
    """Read `detector.json`. Raises CheckpointError if it is missing, damaged or changed."""
    path = folder / DETECTOR
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is not a detector's folder: it has no {DETECTOR}; pass a folder to which a detector was saved"
        )
    with explained(CheckpointError, f"{path} is damaged", "copy the folder again"):
        values = parse_json(text_of(path))
        _ = values["kind"]
        form, check = values.pop("format", None), values.pop("check", None)
    if (form, check) != (None, None) and check != sha256_of_json({**values, "format": form}):
        raise CheckpointError(f"{path} has changed (its checksum differs); copy the whole folder again")
    if form not in (None, FORMAT):
        raise CheckpointError(
            f"{path} has format {form!r}, but this version of Diptych reads {FORMAT}: use the version that wrote it"
        )
    return cast(dict[str, Any], values)


def check_detector(folder: Path, weights: str, *, files: bool = True) -> None:
    """Raise CheckpointError if the detector in `folder` does not have the sha256 `weights` of a feature contract.

    `files`: also check the weights files against their hashes. No network is built.
    """
    if (actual := _hash_of(folder, files)) != weights:
        raise CheckpointError(
            f"{folder} did not compute these features: its weights are {actual[:12] or 'missing'}…, expected "
            f"{weights[:12]}…; pass the detector that computed the features, or extract again"
        )


def _hash_of(folder: Path, files: bool) -> str:
    """Return the hash of the weights in the form that contracts store, or "" if there are no weights.

    For a detector of the kind `with-whole`, the result joins the hashes of the inner detector and of the backbone.
    """
    described = read_detector(folder)
    own = str(described.get("sha256", ""))
    if own and files:
        _read_whole(folder, described)
    inner = folder / "regions"
    if described["kind"] != "with-whole":
        return own
    return hashlib.sha256(f"{_hash_of(inner, files)} {own}".encode()).hexdigest()


def read_detector_weights(folder: Path, described: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read the weights of a detector's folder.

    Raises CheckpointError if their sha256 differs from the one in `detector.json`.
    """
    content, path = _read_whole(folder, described), folder / WEIGHTS
    problem, remedy = f"{path} is not a safetensors file", "copy the whole folder again"
    with explained(CheckpointError, problem, remedy, SafetensorError):
        return load(content)


def weights_in(source: Path) -> dict[str, Tensor]:
    """Read the weights of a detector's folder, or of a file. Raises CheckpointError."""
    return read_detector_weights(source, read_detector(source)) if source.is_dir() else read_weights(source)


def restored(module: M, folder: Path, described: Mapping[str, Any]) -> M:
    """Load the weights of a detector's folder into `module`, and return it. Raises CheckpointError."""
    return fill(module, read_detector_weights(folder, described), str(folder / WEIGHTS))


def _read_whole(folder: Path, described: Mapping[str, Any]) -> bytes:
    path = folder / WEIGHTS
    with explained(CheckpointError, f"cannot read {path}", "copy the whole folder again"):
        content = bytes_of(path)
    actual, wanted = hashlib.sha256(content).hexdigest(), described.get("sha256")
    if actual != wanted:
        raise CheckpointError(
            f"{path} does not match {DETECTOR}: sha256 {actual[:12]}…, expected {str(wanted)[:12]}…; copy the whole "
            "folder again"
        )
    return content


def fill(module: M, tensors: Mapping[str, Tensor], source: str) -> M:
    """Load weights into `module`, and return it. Raises CheckpointError if names or shapes differ."""
    wanted = module.state_dict()
    for name in [*tensors.keys() - wanted.keys(), *wanted.keys() - tensors.keys()]:
        whose = "the network has no" if name in tensors else "it lacks"
        raise CheckpointError(f"{source} belongs to another network: {whose} {name}; pass this network's weights")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise CheckpointError(
                f"{source} belongs to another network: {name} has shape {tuple(tensor.shape)}, expected "
                f"{tuple(wanted[name].shape)}; pass this network's weights"
            )
    module.load_state_dict(dict(tensors))
    return module
