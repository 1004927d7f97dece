"""A network as an ONNX file: its bytes are its weights, and travel as such."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, RecipeError, nearest
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import bytes_of

Array = npt.NDArray[Any]
Axis = int | None  # None: any length
MOST_BYTES = 2 * 2**30  # of one file; larger ones keep their weights beside them
KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8,
         "tensor(int64)": np.int64, "tensor(int32)": np.int32}  # fmt: skip
NAMED = re.compile(r"(\d+)\s*:\s*(?:'([^']*)'|\"([^\"]*)\")")  # as Ultralytics writes the names of classes


class Graph(nn.Module):
    """Run by onnxruntime. The file is a buffer, so that hashing, saving and loading are those of any weights."""

    file: Tensor

    def __init__(self, size: int) -> None:
        """Of `size` bytes, which are still to be filled in."""
        super().__init__()
        self.register_buffer("file", torch.zeros(size, dtype=torch.uint8))
        self._session: Any = None

    @classmethod
    def read(cls, path: Path) -> Graph:
        """Raises CheckpointError for what is no ONNX file, is cut, or keeps its weights in other files."""
        try:
            size = path.stat().st_size
            if not 0 < size < MOST_BYTES:
                raise CheckpointError(f"{path} has {size} bytes; wanted an ONNX file of up to {MOST_BYTES}")
            content = bytes_of(path)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}; wanted an ONNX file") from error
        graph = cls(len(content))
        graph.file.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        graph.open(str(path))
        return graph

    def open(self, source: str = "the ONNX file") -> Any:
        """The session, made once."""
        if self._session is None:
            self._session = _session(self.file.cpu().numpy().tobytes(), source)
        return self._session

    @property
    def size(self) -> int:
        return len(self.file)

    @property
    def inputs(self) -> dict[str, tuple[type, tuple[Axis, ...]]]:
        """By name: the type of the numbers, and the axes."""
        return {one.name: (KINDS.get(one.type, np.float32), _axes(one.shape)) for one in self.open().get_inputs()}

    @property
    def outputs(self) -> dict[str, tuple[Axis, ...]]:
        return {one.name: _axes(one.shape) for one in self.open().get_outputs()}

    @property
    def class_names(self) -> tuple[str, ...]:
        """As the file's own notes have them; empty where they do not."""
        text = str(self.open().get_modelmeta().custom_metadata_map.get("names", ""))
        named = {int(one[1]): one[2] or one[3] for one in NAMED.finditer(text)}
        return tuple(named[number] for number in range(len(named))) if sorted(named) == list(range(len(named))) else ()

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        try:
            found: list[Array] = self.open().run(list(names), dict(feeds))
        except Exception as error:  # onnxruntime's own classes share no base but Exception
            raise CheckpointError(
                f"the ONNX network cannot run on this input ({_first_line(error)}); say what it wants: --set size=, "
                "--set layout=, --set input="
            ) from error
        return found

    def named(self, key: str, name: str, known: Mapping[str, Any]) -> str:
        if name not in known:
            raise RecipeError(f"{key}={name}: the ONNX file has no such; {nearest(name, known)}")
        return name


class Feed(BaseModel):
    """Where pictures go in, and in which order of axes and colours."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    input: str
    layout: Literal["nchw", "nhwc", "chw"]
    colours: Literal["rgb", "bgr"] = "rgb"

    @classmethod
    def guess(cls, graph: Graph, changes: Mapping[str, Any]) -> Feed:
        """The input with the axes of a picture; `changes` say otherwise."""
        of_pictures = [name for name, (_, axes) in graph.inputs.items() if len(axes) >= 3]
        if "input" not in changes and not of_pictures:
            raise RecipeError(
                f"the ONNX file has no input with the axes of a picture; it has {', '.join(graph.inputs)}: give one "
                "with --set input="
            )
        name = graph.named("input", str(changes.get("input", next(iter(of_pictures), ""))), graph.inputs)
        axes = graph.inputs[name][1]
        last = axes[-1] == 3 and axes[1] != 3
        feed = cls(input=name, layout="chw" if len(axes) == 3 else "nhwc" if last else "nchw")
        return derive(feed, **{key: changes[key] for key in ("layout", "colours") if key in changes})

    def side(self, graph: Graph) -> tuple[Axis, Axis]:
        """Height and width that the network wants; None: any."""
        axes = graph.inputs[self.input][1]
        return (axes[-3], axes[-2]) if self.layout == "nhwc" else (axes[-2], axes[-1])

    def one_by_one(self, graph: Graph) -> bool:
        """Whether it takes a single picture at a time."""
        return self.layout == "chw" or graph.inputs[self.input][1][0] is not None

    def reads_bytes(self, graph: Graph) -> bool:
        return graph.inputs[self.input][0] is np.uint8

    def feeds(self, graph: Graph, pixels: Float[Tensor, "B 3 H W"]) -> dict[str, Array]:
        """With the size of the picture where the network asks for it, as RT-DETR's and PaddleDetection's do."""
        kind = graph.inputs[self.input][0]
        pixels = pixels.flip(1) if self.colours == "bgr" else pixels
        array = (pixels.round().clamp(0, 255) if kind is np.uint8 else pixels).cpu().numpy()
        if self.layout != "nchw":
            array = array[0] if self.layout == "chw" else array.transpose(0, 2, 3, 1)
        fed: dict[str, Array] = {self.input: np.ascontiguousarray(array, dtype=kind)}
        height, width = pixels.shape[2:]
        for name, (other, axes) in graph.inputs.items():
            if name == self.input:
                continue
            pair = [1, 1] if "scale" in name else [height, width] if "im_shape" in name else [width, height]
            if len(axes) != 2 or axes[1] not in (2, None):
                raise RecipeError(f"the ONNX file wants {name} too, which nobody here knows; export it without")
            fed[name] = np.tile(np.array([pair], dtype=other), (len(pixels), 1))
        return fed


def _session(content: bytes, source: str) -> Any:
    with requires_extra(source, "onnx"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    with TemporaryDirectory() as empty:  # a file may name others to read; none is there
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", empty)
        try:
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            beside = "external" in str(error).lower()
            raise CheckpointError(
                f"{source} cannot be opened ({_first_line(error)}); "
                + ("it keeps its weights in other files: export it as one" if beside else "export it again")
            ) from error


def _axes(shape: Sequence[Any]) -> tuple[Axis, ...]:
    return tuple(axis if isinstance(axis, int) and axis > 0 else None for axis in shape)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
