"""A network in an ONNX file. The bytes of the file are saved like weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, RecipeError, explained, nearest, reason_of
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import bytes_of

Array = npt.NDArray[Any]
Axis = int | None  # length of an axis; None: any length
# Size limit of an ONNX file in bytes. Larger networks have weights in further files, which Diptych does not support.
MOST_BYTES = 2 * 2**30
KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8,
         "tensor(int64)": np.int64, "tensor(int32)": np.int32}  # fmt: skip
# A class name in the metadata that Ultralytics writes, such as 0: 'person'.
NAMED = re.compile(r"(\d+)\s*:\s*(?:'([^']*)'|\"([^\"]*)\")")


class Graph(nn.Module):
    """An ONNX network that onnxruntime runs.

    The bytes of the file are a buffer of the module, so they are hashed, saved and loaded like weights.
    """

    file: Tensor

    def __init__(self, size: int) -> None:
        """Reserve `size` bytes for the file's content, which is loaded later."""
        super().__init__()
        self.register_buffer("file", torch.zeros(size, dtype=torch.uint8))
        self._session: Any = None

    @classmethod
    def read(cls, path: Path) -> Graph:
        """Read an ONNX file.

        Raises CheckpointError if it is not ONNX, is cut short, or stores weights in further files.
        """
        with explained(CheckpointError, f"cannot read {path}", "check path and permissions"):
            size = path.stat().st_size
            if not 0 < size < MOST_BYTES:
                raise CheckpointError(f"{path} has {size} bytes; expected an ONNX file of at most {MOST_BYTES} bytes")
            content = bytes_of(path)
        return cls.of(content, str(path))

    @classmethod
    def of(cls, content: bytes, source: str) -> Graph:
        """Open the content of an ONNX file.

        `source` is its name in errors. Raises CheckpointError if it cannot be opened.
        """
        graph = cls(len(content))
        graph.file.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        graph.open(source)
        return graph

    def open(self, source: str = "the ONNX file") -> Any:
        """Return onnxruntime's session for the network. It is created at the first call."""
        if self._session is None:
            self._session = _session(self.file.cpu().numpy().tobytes(), source)
        return self._session

    @property
    def size(self) -> int:
        return len(self.file)

    @property
    def inputs(self) -> dict[str, tuple[type, tuple[Axis, ...]]]:
        """Return the type and the axis lengths of each input, by name."""
        return {one.name: (KINDS.get(one.type, np.float32), _axes(one.shape)) for one in self.open().get_inputs()}

    @property
    def outputs(self) -> dict[str, tuple[Axis, ...]]:
        """Return the axis lengths of each output, by name."""
        return {one.name: _axes(one.shape) for one in self.open().get_outputs()}

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the class names in the file's metadata; empty if there are none."""
        text = str(self.open().get_modelmeta().custom_metadata_map.get("names", ""))
        named = {int(one[1]): one[2] or one[3] for one in NAMED.finditer(text)}
        return tuple(named[number] for number in range(len(named))) if sorted(named) == list(range(len(named))) else ()

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Run the network, and return the outputs `names`. Raises CheckpointError if it fails."""
        remedy = "describe the input with --set size=N, --set layout=LAYOUT or --set input=NAME"
        with explained(CheckpointError, "the ONNX file cannot run on this input", remedy, Exception):
            return cast(list[Array], self.open().run(list(names), dict(feeds)))

    def named(self, key: str, name: str, known: Mapping[str, Any]) -> str:
        """Return `name`, the value of the setting `key`. Raises RecipeError if it is not among the names `known`."""
        if name not in known:
            raise RecipeError(f"{key}={name}: the ONNX file has no {name}; {nearest(name, known)}")
        return name


class Feed(BaseModel):
    """The input of an ONNX network that takes images, and the order of its axes and colours."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    input: str
    layout: Literal["nchw", "nhwc", "chw"]
    colours: Literal["rgb", "bgr"] = "rgb"

    @classmethod
    def guess(cls, graph: Graph, changes: Mapping[str, Any]) -> Feed:
        """Choose the first input that has the axes of an image. `changes`: settings that override the inferred ones.

        Raises RecipeError.
        """
        images = [name for name, (_, axes) in graph.inputs.items() if len(axes) >= 3]
        if "input" not in changes and not images:
            raise RecipeError(
                f"no input of the ONNX file has the axes of an image; it has {', '.join(graph.inputs)}: choose one "
                "with --set input=NAME"
            )
        name = graph.named("input", str(changes.get("input", next(iter(images), ""))), graph.inputs)
        axes = graph.inputs[name][1]
        last = axes[-1] == 3 and axes[1] != 3
        feed = cls(input=name, layout="chw" if len(axes) == 3 else "nhwc" if last else "nchw")
        return derive(feed, **{key: changes[key] for key in ("layout", "colours") if key in changes})

    def side(self, graph: Graph) -> tuple[Axis, Axis]:
        """Return height and width of the input in pixels; None: any."""
        axes = graph.inputs[self.input][1]
        return (axes[-3], axes[-2]) if self.layout == "nhwc" else (axes[-2], axes[-1])

    def one_by_one(self, graph: Graph) -> bool:
        """Return True if the network accepts only batches of one image."""
        return self.layout == "chw" or graph.inputs[self.input][1][0] is not None

    def reads_bytes(self, graph: Graph) -> bool:
        return graph.inputs[self.input][0] is np.uint8

    def feeds(self, graph: Graph, pixels: Float[Tensor, "B 3 H W"]) -> dict[str, Array]:
        """Return the values of all inputs.

        Some networks have an input for the image's size (RT-DETR, PaddleDetection).
        """
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
                raise RecipeError(
                    f"Diptych cannot fill the input {name} of the ONNX file; export the network without this input"
                )
            fed[name] = np.tile(np.array([pair], dtype=other), (len(pixels), 1))
        return fed


def _session(content: bytes, source: str) -> Any:
    with requires_extra(source, "onnx"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    with TemporaryDirectory() as empty:  # an ONNX file may refer to other files; in an empty folder it finds none
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", empty)
        try:
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            # Names (of axes too) that are not UTF-8 raise an error here, and not where they are used.
            _ = [(one.name, one.shape) for one in (*session.get_inputs(), *session.get_outputs())]
            _ = session.get_modelmeta().custom_metadata_map
            return session
        except Exception as error:
            split = "external" in str(error).lower()
            remedy = "its weights are in other files: export one file with all of them" if split else "export it again"
            raise CheckpointError(f"{source} cannot be opened ({reason_of(error)}); {remedy}") from error


def _axes(shape: Sequence[Any]) -> tuple[Axis, ...]:
    return tuple(axis if isinstance(axis, int) and axis > 0 else None for axis in shape)
