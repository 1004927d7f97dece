"""Backbones in ONNX files. One of their outputs is a feature map or a transformer's tokens."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.runtime.errors import RecipeError
from diptych.vision.backbones.onnx_graph import Feed, Graph
from diptych.vision.backbones.opened import DEVIATION, MEAN, SIDE, OpenedNetwork, as_map, refuse_unknown, three

KEYS = ("input", "layout", "colours", "side", "mean", "deviation", "map")


class _LastMap(nn.Module):
    def __init__(self, graph: Graph, feed: Feed, output: str) -> None:
        super().__init__()
        self.graph, self.feed, self.output = graph, feed, output

    def forward(self, pixels: Tensor) -> Tensor:
        at_once = 1 if self.feed.one_by_one(self.graph) else len(pixels)
        parts = [self._run(some) for some in torch.split(pixels, at_once)]
        return torch.cat(parts).to(pixels.device)

    def _run(self, pixels: Tensor) -> Tensor:
        (array,) = self.graph.run([self.output], self.feed.feeds(self.graph, pixels))
        cells = torch.from_numpy(array.astype(np.float32))
        cells = cells[None] if cells.ndim == 3 and self.feed.layout == "chw" else cells
        if cells.ndim == 3:
            return as_map(cells)
        if cells.ndim == 4:
            return channels_second(cells, self.feed.layout)
        raise RecipeError(
            f"output {self.output} has shape {tuple(cells.shape)}, expected a map (B, F, h, w) or tokens (B, N, F); "
            f"pass --set map=NAME with another output: {', '.join(self.graph.outputs)}"
        )


def channels_second(cells: Tensor, layout: str) -> Float[Tensor, "B F h w"]:
    """Return a feature map of either layout as (B, F, h, w). `layout`: that of the network's input.

    The two axes of equal length are the sides of the map. If all three are equal, or none, the map has the input's
    layout.
    """
    _, first, middle, third = cells.shape
    last = layout == "nhwc" if (first == middle) == (middle == third) else first == middle
    return cells.permute(0, 3, 1, 2) if last else cells


def read(path: Path, settings: Mapping[str, Any], report: Callable[[str], object]) -> OpenedNetwork:
    """Open an ONNX file. `report` is called with a line for each setting inferred from names and shapes.

    Raises RecipeError.
    """
    refuse_unknown(settings, KEYS, "an ONNX backbone")
    graph = Graph.read(path)
    feed = Feed.guess(graph, settings)
    height, width = feed.side(graph)
    if height != width:
        raise RecipeError(
            f"{path} has an input of {width} x {height} pixels, expected a square; export it for square images"
        )
    side = settings.get("side", height or SIDE)
    if not isinstance(side, int) or (height is not None and side != height):
        raise RecipeError(f"side={side}: this ONNX file needs {height or 'a whole number of'} pixels")
    usual = ((0.0, 0.0, 0.0), (1 / 255,) * 3) if feed.reads_bytes(graph) else (MEAN, DEVIATION)
    mean = three("mean", settings.get("mean", usual[0]))
    deviation = three("deviation", settings.get("deviation", usual[1]))
    outputs = graph.outputs
    maps = [name for name, axes in outputs.items() if len(axes) == 4] or [n for n, a in outputs.items() if len(a) == 3]
    if "map" not in settings and not maps:
        raise RecipeError(
            f"no output of {path} is a map (B, F, h, w) or tokens (B, N, F); it has {', '.join(outputs)}; export "
            "such an output, or try one of these with --set map=NAME"
        )
    output = graph.named("map", str(settings.get("map", maps[-1] if maps else "")), outputs)
    config = {"feed": feed.model_dump(), "map": output, "bytes": graph.size}
    normal = {"mean": list(mean), "deviation": list(deviation)}
    for key, value in {**feed.model_dump(), "side": side, "map": output, **normal}.items():
        if key not in settings:
            report(f"assumed: {key}={value}")
    return OpenedNetwork(_LastMap(graph, feed, output), side, mean, deviation, config)


def built(described: Mapping[str, Any]) -> nn.Module:
    """Build the network from its saved description. The content of the ONNX file is loaded later, like weights."""
    config = described["config"]
    return _LastMap(Graph(config["bytes"]), Feed.model_validate(config["feed"]), config["map"])
