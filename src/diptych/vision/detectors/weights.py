"""Detector folders: `detector.json` says what it is, `detector.safetensors` are its weights. No pickle.

The sha256 of the weights stands in `detector.json`, and that of all else in it as its own `check`: no byte of the
folder changes unseen. A folder of before has neither `check` nor `format`, and is read as it is.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError
from diptych.runtime.files import bytes_of, parse_json, sha256_of_json, text_of, write_atomically

DETECTOR, WEIGHTS = "detector.json", "detector.safetensors"
FORMAT = 2  # of detector.json; 1 had no check, and did not say its format
M = TypeVar("M", bound=nn.Module)


def packed(module: nn.Module) -> bytes:
    """The weights as the bytes of a file; the same weights give the same bytes."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()})


def fingerprint(module: nn.Module) -> str:
    """sha256 of the weights' file, whether it was written yet or not."""
    return hashlib.sha256(packed(module)).hexdigest()


def write_detector(folder: Path, described: Mapping[str, Any], module: nn.Module | None = None) -> None:
    """Weights first: a folder with an `detector.json` is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {**described, "format": FORMAT}
    if module is not None:
        content = packed(module)
        write_atomically(folder / WEIGHTS, content)
        values["sha256"] = hashlib.sha256(content).hexdigest()
    values["check"] = sha256_of_json(values)
    write_atomically(folder / DETECTOR, (json.dumps(values, indent=1) + "\n").encode())


def read_detector(folder: Path) -> dict[str, Any]:
    """What `detector.json` says. Raises CheckpointError where it is not what was written."""
    path = folder / DETECTOR
    if not path.is_file():
        raise CheckpointError(
            f"{folder} holds no detector: it has no {DETECTOR}; give a folder that a detector was saved to"
        )
    try:
        values = parse_json(text_of(path))
        _ = values["kind"]
        form, check = values.pop("format", None), values.pop("check", None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({error!r}); copy the folder again") from error
    if (form, check) != (None, None) and check != sha256_of_json({**values, "format": form}):
        raise CheckpointError(f"{path} is not what was written (its check differs); copy the whole folder again")
    if form not in (None, FORMAT):
        raise CheckpointError(f"{path} has format {form!r}, and this Diptych reads {FORMAT}: use its version")
    read: dict[str, Any] = values
    return read


def check_detector(folder: Path, weights: str, *, files: bool = True) -> None:
    """Refuse a folder that is not the detector of a contract: its files against their hashes, those against `weights`.

    Without `files` those of the weights are not read. No network is built. Raises CheckpointError.
    """
    if (found := _hash_of(folder, files)) != weights:
        raise CheckpointError(
            f"{folder} is another detector than the one that made the features: {found[:12] or 'no weights'}…, wanted "
            f"{weights[:12]}…; copy the detector from where the features were made, or extract again"
        )


def _hash_of(folder: Path, files: bool) -> str:
    """As contracts have it (`WithImageFeature.contract` joins two); "" where there are no weights."""
    described = read_detector(folder)
    own = str(described.get("sha256", ""))
    if own and files:
        _read_whole(folder, described)
    inner = folder / "regions"
    if described["kind"] != "with-whole":
        return own
    return hashlib.sha256(f"{_hash_of(inner, files)} {own}".encode()).hexdigest()


def read_weights(folder: Path, described: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights beside `detector.json`, held against the hash in it: other weights see other features."""
    content, path = _read_whole(folder, described), folder / WEIGHTS
    try:
        return load(content)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is no safetensors file ({error}); copy the whole folder again") from error


def restored(module: M, folder: Path, described: Mapping[str, Any]) -> M:
    """The module with the weights of a detector's folder."""
    return fill(module, read_weights(folder, described), str(folder / WEIGHTS))


def _read_whole(folder: Path, described: Mapping[str, Any]) -> bytes:
    path = folder / WEIGHTS
    try:
        content = bytes_of(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}; copy the whole folder again") from error
    found, wanted = hashlib.sha256(content).hexdigest(), described.get("sha256")
    if found != wanted:
        raise CheckpointError(
            f"{path} is not what {DETECTOR} beside it says: sha256 {found[:12]}…, wanted {str(wanted)[:12]}…; "
            "copy the whole folder again"
        )
    return content


def fill(module: M, tensors: Mapping[str, Tensor], source: str) -> M:
    """The module with these weights, all of them and no others."""
    wanted = module.state_dict()
    for name in [*tensors.keys() - wanted.keys(), *wanted.keys() - tensors.keys()]:
        whose = "the network has no" if name in tensors else "it lacks"
        raise CheckpointError(f"{source} is of another network: {whose} {name}")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise CheckpointError(
                f"{source} is of another network: {name} is {tuple(tensor.shape)}, wanted {tuple(wanted[name].shape)}"
            )
    module.load_state_dict(dict(tensors))
    return module
