"""Fast R-CNN (Girshick 2015) as VL-BERT trains it end to end: pixels and boxes -> a feature of each region.

    pixels ── stem, stages 1 to 3 ──▶ maps at 1/16 ── RoIAlign ──▶ 14 x 14 of each box ── stage 4 ──▶ mean ──▶ feature
              (stem, stage 1 frozen)                               (dilated, so that it stays 14 x 14)

A ResNet of torchvision's, with the stride of a stage in its first 1 x 1 convolution, where the weights that VL-BERT
begins from have it, or in the 3 x 3 one, as torchvision's weights want it. Batch norms keep their statistics and their
scale. RoIAlign is the code's: one sample a cell, and pixels are points (not `aligned`).
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from diptych.models.weights import ImportReport, load_into
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors

Network = Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
Stride = Literal["1x1", "3x3"]
STRIDE = 16  # pixels a step of the maps
CELLS = 14  # of a region, both ways, as VL-BERT has it
STAGES = ("stem", "layer1", "layer2", "layer3")
FIRST, LAST = "conv1.weight", "layer4.0.conv1.weight"  # by which a ResNet is known in a file
PARTS, COUNTER = ("conv1.", "bn1.", "layer"), "num_batches_tracked"


class FastRCNN(nn.Module):
    def __init__(self, network: Network, frozen: int = 2, cells: int = CELLS, stride: Stride = "1x1") -> None:
        """`frozen`: how many of stem, stage 1, stage 2, stage 3 keep their weights. `cells`: of a region, both ways;
        stage 4, most of the work, costs as their square. `stride`: which convolution of a bottleneck has a stage's."""
        from torchvision import models

        super().__init__()
        self.across = cells
        whole: Any = getattr(models, network)(weights=None)
        self.backbone = nn.Module()
        for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
            setattr(self.backbone, name, getattr(whole, name))
        self.head: nn.Sequential = whole.layer4
        self.size: int = whole.fc.in_features  # F
        self.bottlenecks = _is_bottleneck(whole.layer2[0])
        if stride == "1x1":
            for stage in (whole.layer2, whole.layer3):
                _stride_first(stage[0])
        _dilate(self.head)
        early = [(self.backbone.conv1, self.backbone.bn1), *((getattr(self.backbone, n),) for n in STAGES[1:])]
        for stage in early[:frozen]:
            for part in cast("tuple[nn.Module, ...]", stage):
                part.requires_grad_(False)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.requires_grad_(False)

    def train(self, mode: bool = True) -> FastRCNN:
        """Batch norms stay as they are: a batch of a few large pictures would tell them little."""
        super().train(mode)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()
        return self

    def forward(
        self,
        pixels: Float[Tensor, "B 3 height width"],
        boxes: Float[Tensor, "B P 4"],
        present: Bool[Tensor, "B P"],
        masks: Float[Tensor, "B P m m"] | None = None,
    ) -> Float[Tensor, "B P F"]:
        """Boxes in pixels, corners; zeros where none is present.

        `masks` close what is not the thing: they are multiplied with what stage 4 makes of the cells, and the mean is
        over all cells, open or not (the code's fast_rcnn.py:151-154). A cell of fewer is as open as those it covers.
        """
        rows, places = present.nonzero(as_tuple=True)
        found = pixels.new_zeros(*present.shape, self.size)
        if not len(rows):
            return found
        rois = torch.cat([rows[:, None].to(boxes), boxes[rows, places]], 1)
        cells = self.head(self.cells(self.maps(pixels), rois))
        if masks is not None:
            cells = cells * adaptive_avg_pool2d(masks[rows, places][:, None].to(cells), self.across)
        return found.index_put((rows, places), cells.mean((2, 3)).to(found))

    def maps(self, pixels: Float[Tensor, "B 3 height width"]) -> Float[Tensor, "B c h w"]:
        net = cast("Any", self.backbone)
        x = torch.max_pool2d(torch.relu(net.bn1(net.conv1(pixels))), 3, 2, 1)
        out: Tensor = net.layer3(net.layer2(net.layer1(x)))
        return out

    def cells(self, maps: Float[Tensor, "B c h w"], rois: Float[Tensor, "N 5"]) -> Float[Tensor, "N c cells cells"]:
        from torchvision.ops import roi_align

        pooled: Tensor = roi_align(maps, rois.to(maps), self.across, 1 / STRIDE, sampling_ratio=1, aligned=False)
        return pooled


def begin_from_resnet(network: FastRCNN, tensors: Tensors, source: str) -> ImportReport:
    """Begin from a ResNet: torchvision's, the one in a detector of torchvision's, or VL-BERT's of Visual Genome.

    Raises CheckpointError where there is none of this size. The rest of a detector is left.
    """
    starts = [name.removesuffix(FIRST) for name in tensors if name.endswith(FIRST)]
    start = next((prefix for prefix in starts if prefix + LAST in tensors), None)
    if start is None:
        raise CheckpointError(
            f"{source} holds no ResNet: no {FIRST} beside a {LAST}; give weights of torchvision's ResNet or of a "
            "detector that has one (`diptych storybook detector RUN --faster-rcnn resnet18_fpn`)"
        )
    ours = {
        name.replace("layer4.", "head.") if name.startswith("layer4.") else f"backbone.{name}": tensor
        for name, tensor in ((name.removeprefix(start), tensor) for name, tensor in tensors.items())
        if name.startswith(PARTS)
    }
    wanted = network.state_dict()
    counters = {name: value for name, value in wanted.items() if name.endswith(COUNTER)}
    ours = counters | ours  # norms that never learn have none
    sizes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in (ours, wanted)]
    if sizes[0] != sizes[1]:
        other = sorted(name for name in ours.keys() | wanted.keys() if sizes[0].get(name) != sizes[1].get(name))[0]
        raise CheckpointError(f"{source} has another ResNet than model.network, by {other}; name the one it has")
    return load_into(network, ours, complete=True)


def of_torchvision(tensors: Tensors) -> bool:
    """Whether weights are torchvision's, or a detector's of torchvision's: they read RGB, and stride in 3 x 3."""
    return any(name.startswith(("fc.", "backbone.body.")) for name in tensors)


def _stride_first(block: Any) -> None:
    """Into the 1 x 1 convolution that begins a bottleneck; torchvision has it in the 3 x 3 one."""
    if _is_bottleneck(block):
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)


def _dilate(stage: nn.Sequential) -> None:
    """No stride, and 3 x 3 convolutions that reach as far as they did behind one."""
    for block in stage:
        for part in block.modules():
            if isinstance(part, nn.Conv2d):
                part.stride = (1, 1)
                if part.kernel_size == (3, 3):
                    part.dilation = part.padding = (2, 2)


def _is_bottleneck(block: nn.Module) -> bool:
    return hasattr(block, "conv3")
