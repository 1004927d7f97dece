"""Read and write files of weights, on disk or on the Hugging Face hub. No code in the files is run."""

import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from diptych.runtime.downloads import first_line, without_retries
from diptych.runtime.errors import CheckpointError
from diptych.runtime.files import text_of

Tensors = dict[str, Tensor]
# Keys under which training scripts save the state dict in a checkpoint.
WRAPPERS = ("state_dict", "model", "model_state_dict", "module")
HUB_FILES = ("model.safetensors", "pytorch_model.bin")
VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer_config.json"


def write_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file with the usual permissions of new files. The library itself would use 0600."""
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path)
    path.chmod(mode)


def compact(tensors: Mapping[str, Tensor]) -> Tensors:
    """Return tensors ready to be written: on the CPU, and in bf16 if all fp32 tensors can be converted without loss."""
    ours = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    long = {name: tensor for name, tensor in ours.items() if tensor.dtype == torch.float32}
    short = all(torch.equal(tensor, tensor.bfloat16().float()) for tensor in long.values())
    return ours | ({name: tensor.bfloat16() for name, tensor in long.items()} if short else {})


def read_weights(path: Path) -> Tensors:
    """Return all tensors of a safetensors or PyTorch file (.bin, .pt, .pth), by name, on the CPU.

    A PyTorch file is a pickle. It is read with `weights_only`, which accepts only tensors and plain values. Raises
    CheckpointError for a file that is missing, damaged, unsafe or without tensors.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "missing"
        raise CheckpointError(f"{path} is {kind}; expected a file of weights (.safetensors, .bin, .pt or .pth)")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path} is empty; copy it again from its source")
    tensors = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    if not tensors:
        raise CheckpointError(f"{path} has no tensors; expected a state dict, which maps names to tensors")
    return tensors


def _read_safetensors(path: Path) -> Tensors:
    try:
        tensors: Tensors = load_file(path)
        return tensors
    except SafetensorError as error:
        why = f"is cut short or is not a safetensors file ({error})"
        raise CheckpointError(f"{path} {why}; copy it again from its source") from error


def _read_torch(path: Path) -> Tensors:
    # A zip file without the table of contents at its end is cut short. Torch would misread such a file as a pickle.
    with path.open("rb") as file:
        start = file.read(16)
    zipped, pickled = start[:2] == b"PK", start[:1] == b"\x80"
    if zipped and not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path} is cut short: {path.stat().st_size} bytes; copy it again from its source")
    try:
        # Torch warns about pickles of other programs. The warning is hidden, because an error for such a file follows.
        with warnings.catch_warnings(action="ignore"):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if (zipped or pickled) and "Unsupported" in str(error):
            why = "is a pickle that holds more than tensors, and loading it would run its code"
            way_out = "save its state dict alone, or convert it to safetensors if you trust it"
            raise CheckpointError(f"{path} {why}; {way_out}") from error
        why = f"is not a file of weights, or is damaged (it begins with {start!r})"
        raise CheckpointError(f"{path} {why}; expected safetensors or a PyTorch state dict") from error
    except Exception as error:  # for a damaged pickle, torch may raise struct.error, KeyError, RuntimeError and others
        why = f"is cut short or damaged ({first_line(error)})"
        raise CheckpointError(f"{path} {why}; copy it again from its source") from error
    return _unwrapped(loaded, path)


def _unwrapped(loaded: object, path: Path, depth: int = len(WRAPPERS)) -> Tensors:
    """Return the tensors inside the keys WRAPPERS, such as `state_dict`.

    `depth` limits the nesting, because a dict may contain itself.
    """
    if not isinstance(loaded, Mapping):
        return {}
    for name in WRAPPERS:
        if depth and isinstance(inner := loaded.get(name), Mapping):
            return _unwrapped(inner, path, depth - 1)
    tensors = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
    for name, value in tensors.items():
        kind = "without values" if value.is_meta else "quantised" if value.is_quantized else "sparse"
        if value.is_meta or value.is_quantized or value.layout is not torch.strided:
            raise CheckpointError(f"{path}: the tensor {name} is {kind}; save it as a plain tensor of numbers")
    return tensors


def find_weights(source: str | os.PathLike[str]) -> Path:
    """Return the path of a weights file.

    `source`: the file, its folder, or a hub id such as `bert-base-cased`, which is downloaded once.

    Raises CheckpointError if the folder or repository has no weights file. A missing file is reported later, by
    `read_weights`.
    """
    path = Path(source)
    if not _is_hub_id(source):
        files = [path / name for name in HUB_FILES if (path / name).is_file()] if path.is_dir() else [path]
        if not files:
            raise CheckpointError(f"{path} holds neither {' nor '.join(HUB_FILES)}; pass the path of the weights file")
        return files[0]
    for name in HUB_FILES:
        if (file := from_hub(str(source), name)) is not None:
            return file
    raise CheckpointError(f"{source} on the hub has neither {' nor '.join(HUB_FILES)}; pass the path of its weights")


def find_words(source: str | os.PathLike[str]) -> tuple[Path, bool | None] | None:
    """Return the vocab.txt of a BERT in a folder or on the hub, and True if its texts are lower-cased.

    The second value is None if tokenizer_config.json does not state it. Return None if there is no vocabulary, or if
    `source` is a file.
    """
    path = Path(source)
    if not path.is_dir() and not _is_hub_id(source):
        return None
    vocabulary, settings = (
        (path / file if (path / file).is_file() else None) if path.is_dir() else from_hub(str(source), file)
        for file in (VOCABULARY, TOKENIZER)
    )
    if vocabulary is None:
        return None
    try:
        values = {} if settings is None else json.loads(text_of(settings))
        lowercase = values.get("do_lower_case")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{settings} is damaged ({error}); copy it again, or pass --vocab") from error
    return vocabulary, lowercase if isinstance(lowercase, bool) else None


def _is_hub_id(source: str | os.PathLike[str]) -> bool:
    path = Path(source)
    return not (path.exists() or path.suffix or path.is_absolute() or str(source).count("/") > 1)


def from_hub(name: str, file: str, revision: str | None = None, use: str = "pass its path") -> Path | None:
    """Return the path of a file from a repository on the hub, which is downloaded once.

    Return None if the repository has no such file.

    `use`: what to do with a file downloaded by hand, for the error. Raises CheckpointError if the hub cannot be
    reached.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    way_out = f"download {file} where there is a network, and {use}"
    try:
        with without_retries():
            return Path(hf_hub_download(name, file, revision=revision))
    except LocalEntryNotFoundError as error:  # before EntryNotFoundError, which is its base class
        raise CheckpointError(f"there is no file {name}, and the hub cannot be reached; {way_out}") from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError, ValueError) as error:
        why = f"fetching it from the hub failed ({first_line(error)})"
        raise CheckpointError(f"there is no file {name}, and {why}; check the name, or {way_out}") from error
