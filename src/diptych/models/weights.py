"""Files of weights: read without running anybody's code, and put into a model with an account of every key."""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from diptych.errors import CheckpointError

Tensors = dict[str, Tensor]
# What other people's training scripts wrap their tensors in.
WRAPPERS = ("state_dict", "model", "model_state_dict", "module")
HUB_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass
class Report:
    """What became of every key."""

    loaded: list[str] = field(default_factory=list)  # ours, under their own name or renamed
    renamed: dict[str, str] = field(default_factory=dict)  # theirs -> ours
    missing: list[str] = field(default_factory=list)  # ours that nothing was found for: they start fresh
    left: dict[str, str] = field(default_factory=dict)  # theirs that were not used -> why

    def lines(self) -> list[str]:
        return [
            *(f"renamed  {theirs} -> {ours}" for theirs, ours in self.renamed.items()),
            *(f"missing  {name}: starts fresh" for name in self.missing),
            *(f"left     {name}: {why}" for name, why in self.left.items()),
            f"{len(self.loaded)} loaded, {len(self.renamed)} renamed, {len(self.missing)} missing, "
            f"{len(self.left)} left",
        ]


def read_weights(path: Path) -> Tensors:
    """All tensors of a safetensors file or of a PyTorch file (.bin, .pt, .pth), on the CPU, by their names there.

    A PyTorch file is a pickle; it is read with `weights_only`, which refuses everything but tensors and plain values.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "missing"
        raise CheckpointError(f"{path} is {kind}; wanted a file of weights (.safetensors, .bin, .pt or .pth)")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path} is empty; copy it again from its source")
    tensors = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors; wanted a state dict: names and their tensors")
    return tensors


def _read_safetensors(path: Path) -> Tensors:
    try:
        tensors: Tensors = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is cut short or is not a safetensors file ({error}); copy it again from its source"
        ) from error
    return tensors


def _read_torch(path: Path) -> Tensors:
    # A zip without its table of contents, which is at the end, is a file cut short; torch would take it for a pickle.
    with path.open("rb") as file:
        start = file.read(2)
    zipped, pickled = start == b"PK", start[:1] == b"\x80"
    if zipped and not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path} is cut short: {path.stat().st_size} bytes; copy it again from its source")
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles that other programs wrote: refused below
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if (zipped or pickled) and "Unsupported" in str(error):
            raise CheckpointError(
                f"{path} is a pickle that holds more than tensors, and loading it would run its code; save its "
                "state dict alone, or convert it to safetensors where you trust it"
            ) from error
        raise CheckpointError(
            f"{path} is not a file of weights, or is damaged ({_first_line(error)}); wanted safetensors or a "
            "PyTorch state dict"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise CheckpointError(
            f"{path} is cut short or damaged ({_first_line(error)}); copy it again from its source"
        ) from error
    return _unwrapped(loaded)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _unwrapped(loaded: object) -> Tensors:
    if not isinstance(loaded, Mapping):
        return {}
    for name in WRAPPERS:
        if isinstance(inner := loaded.get(name), Mapping):
            return _unwrapped(inner)
    return {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}


def load_into(model: nn.Module, tensors: Tensors, report: Report | None = None, *, complete: bool = False) -> Report:
    """Copy tensors into the parameters and buffers of the same name; the others keep their fresh values.

    `complete` refuses a file that lacks any. A wrong shape is always refused.
    """
    report = report or Report()
    wanted = model.state_dict()
    wrong = [
        f"{name} is {_shape(tensors[name])}, wanted {_shape(value)}"
        for name, value in wanted.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if wrong:
        raise CheckpointError(
            f"{len(wrong)} tensors have other sizes than the model: {'; '.join(wrong[:3])}"
            f"{' ...' if len(wrong) > 3 else ''}; build the model with the sizes of the file"
        )
    report.missing = [name for name in wanted if name not in tensors]
    if complete and report.missing:
        raise CheckpointError(
            f"the file lacks {len(report.missing)} of the model's {len(wanted)} tensors, such as {report.missing[0]}; "
            "it belongs to another model"
        )
    report.loaded = [name for name in wanted if name in tensors]
    if not report.loaded:
        raise CheckpointError(
            f"none of the file's {len(tensors)} tensors belongs to this model: it has {_some(tensors)}, the model "
            f"{_some(wanted)}; check which system the file is of"
        )
    report.left.update({name: "not in the model" for name in tensors if name not in wanted})
    with torch.no_grad():
        for name in report.loaded:
            wanted[name].copy_(tensors[name])
    return report


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _some(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(sorted(tensors)[:2])


def digest(model: nn.Module, before: str = "") -> str:
    """sha256 of `before` and of all weights, by their names: what was computed with them can be kept under it."""
    hashed = hashlib.sha256(before.encode())
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def find_weights(source: str | os.PathLike[str]) -> Path:
    """A file on disk, the weights in a folder, or a hub id such as `bert-base-cased`, fetched once and cached."""
    path = Path(source)
    if path.is_dir():
        for name in HUB_FILES:
            if (path / name).is_file():
                return path / name
        raise CheckpointError(f"{path} holds neither {' nor '.join(HUB_FILES)}; name the file of weights itself")
    if path.exists() or path.suffix or path.is_absolute() or str(source).count("/") > 1:
        return path  # `read_weights` says what is wrong with it
    return _from_hub(str(source))


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    for file in HUB_FILES:
        try:
            return Path(hf_hub_download(name, file))
        except LocalEntryNotFoundError as error:  # also an EntryNotFoundError: it has to be asked first
            raise CheckpointError(
                f"{name} is no file here, and the hub cannot be reached; download {file} where there is a network and "
                "give its path"
            ) from error
        except EntryNotFoundError:
            continue
        except (HfHubHTTPError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{name} is no file here, and fetching it from the hub failed ({_first_line(error)}); give the path "
                "of a file of weights"
            ) from error
    raise CheckpointError(f"{name} on the hub has neither {' nor '.join(HUB_FILES)}; give the path of its weights")
