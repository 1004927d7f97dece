"""Fast R-CNN (Girshick 2015), which computes a feature for each box from pixels. VL-BERT trains it end to end.

    pixels ── stem, stages 1 to 3 ──▶ maps at 1/16 ── RoIAlign ──▶ 14 x 14 of each box ── stage 4 ──▶ mean ──▶ feature
              (code: stem, 1 frozen)                               (dilated, so that the size stays 14 x 14)

The ResNet is torchvision's. In each block, the stride is in the first 1 x 1 convolution, as in VL-BERT's initial
weights, or in the 3 x 3 convolution, as in torchvision's weights. Statistics of batch norms are always frozen. The code
also freezes their scales and offsets. As in the code, RoIAlign uses one sample per cell and aligned=False.
"""

from __future__ import annotations

from collections.abc import Iterator
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
STRIDE = 16  # distance between cells of the feature maps after stage 3, in pixels
CELLS = 14  # number of RoIAlign's cells per box and axis, as in VL-BERT
FIRST, LAST = "conv1.weight", "layer4.0.conv1.weight"  # a file has a ResNet if it has tensors with these names
PARTS, COUNTER = ("conv1.", "bn1.", "layer"), "num_batches_tracked"


class FastRCNN(nn.Module):
    """A ResNet with RoIAlign before its last stage. It returns a feature for each box."""

    def __init__(
        self, network: Network, frozen: int = 2, cells: int = CELLS, stride: Stride = "1x1", norms_frozen: bool = True
    ) -> None:
        """Build a network with random weights.

        `frozen`: number of parts that are not trained, counted in the order stem, stage 1, stage 2, stage 3. `cells`:
        cells per region and axis; most of the time is spent in stage 4, whose cost grows with their square. `stride`:
        which convolution of a bottleneck has the stride, 1x1 or 3x3. `norms_frozen`: True: the scales and offsets of
        batch norms are not trained.
        """
        from torchvision import models

        super().__init__()
        self.across = cells
        whole: Any = getattr(models, network)(weights=None)
        self.backbone = nn.Module()
        for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
            setattr(self.backbone, name, getattr(whole, name))
        self.head: nn.Sequential = whole.layer4
        self.size: int = whole.fc.in_features  # number of values of a region feature (F)
        self.bottlenecks = hasattr(whole.layer2[0], "conv3")
        if stride == "1x1" and self.bottlenecks:  # torchvision has the stride in the 3x3 convolution; move it
            for stage in (whole.layer2, whole.layer3):
                stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
        _dilate(self.head)
        stages = ((whole.conv1, whole.bn1), (whole.layer1,), (whole.layer2,), (whole.layer3,))
        norms = self._batch_norms() if norms_frozen else ()
        for part in (*(part for stage in stages[:frozen] for part in stage), *norms):
            part.requires_grad_(False)

    def _batch_norms(self) -> Iterator[nn.Module]:
        return (part for part in self.modules() if isinstance(part, nn.BatchNorm2d))

    def train(self, mode: bool = True) -> FastRCNN:
        """Set training mode, except for batch norms: the statistics of a few large images are too noisy."""
        super().train(mode)
        for part in self._batch_norms():
            part.eval()
        return self

    def forward(
        self,
        pixels: Float[Tensor, "B 3 height width"],
        boxes: Float[Tensor, "B P 4"],
        present: Bool[Tensor, "B P"],
        masks: Float[Tensor, "B P m m"] | None = None,
    ) -> Float[Tensor, "B P F"]:
        """Return a feature for each box. Boxes are corners in pixels. Where `present` is False, the feature is zero.

        The cells after stage 4 are multiplied by `masks`. The feature is their mean over all cells, including masked
        ones (the code's fast_rcnn.py:151-154). If a box has fewer than 14 x 14 cells, the masks are averaged to that
        number of cells.
        """
        rows, places = present.nonzero(as_tuple=True)
        features = pixels.new_zeros(*present.shape, self.size)
        if not len(rows):
            return features
        rois = torch.cat([rows[:, None].to(boxes), boxes[rows, places]], 1)
        cells = self.head(self.cells(self.maps(pixels), rois))
        if masks is not None:
            cells = cells * adaptive_avg_pool2d(masks[rows, places][:, None].to(cells), self.across)
        return features.index_put((rows, places), cells.mean((2, 3)).to(features))

    def maps(self, pixels: Float[Tensor, "B 3 height width"]) -> Float[Tensor, "B c h w"]:
        """Return the feature maps after stage 3, with stride 16."""
        net = cast("Any", self.backbone)
        x = torch.max_pool2d(torch.relu(net.bn1(net.conv1(pixels))), 3, 2, 1)
        out: Tensor = net.layer3(net.layer2(net.layer1(x)))
        return out

    def cells(self, maps: Float[Tensor, "B c h w"], rois: Float[Tensor, "N 5"]) -> Float[Tensor, "N c cells cells"]:
        """Return the cells of each box after RoIAlign.

        A row of `rois` is the image's index in the batch, then corners in pixels.
        """
        from torchvision.ops import roi_align

        pooled: Tensor = roi_align(maps, rois.to(maps), self.across, 1 / STRIDE, sampling_ratio=1, aligned=False)
        return pooled


def begin_from_resnet(network: FastRCNN, tensors: Tensors, source: str) -> ImportReport:
    """Initialise from a ResNet in `tensors`: torchvision's, VL-BERT's, or the backbone of a torchvision detector.

    Other parts of a detector are ignored. Raises CheckpointError if there is no ResNet of the network's size.
    """
    prefixes = [name.removesuffix(FIRST) for name in tensors if name.endswith(FIRST)]
    prefix = next((one for one in prefixes if one + LAST in tensors), None)
    if prefix is None:
        raise CheckpointError(
            f"{source} holds no ResNet: it lacks {FIRST} or {LAST}; pass weights of torchvision's ResNet, or of a "
            "detector with a ResNet (`diptych storybook detector --out RUN --faster-rcnn resnet18_fpn`)"
        )
    ours = {
        name.replace("layer4.", "head.") if name.startswith("layer4.") else f"backbone.{name}": tensor
        for name, tensor in ((name.removeprefix(prefix), tensor) for name, tensor in tensors.items())
        if name.startswith(PARTS)
    }
    wanted = network.state_dict()
    counters = {name: value for name, value in wanted.items() if name.endswith(COUNTER)}
    ours = counters | ours  # files of torchvision's detectors lack these, because their batch norms are frozen
    sizes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in (ours, wanted)]
    if sizes[0] != sizes[1]:
        other = sorted(name for name in ours.keys() | wanted.keys() if sizes[0].get(name) != sizes[1].get(name))[0]
        raise CheckpointError(
            f"the ResNet in {source} is not model.network ({other} differs); set model.network to the file's ResNet"
        )
    return load_into(network, ours, complete=True)


def of_torchvision(tensors: Tensors) -> bool:
    """Return True for weights of torchvision or its detectors.

    They need RGB images and the stride in 3 x 3 convolutions.
    """
    return any(name.startswith(("fc.", "backbone.body.")) for name in tensors)


def _dilate(stage: nn.Sequential) -> None:
    """Replace the stride of a stage by dilation of its 3 x 3 convolutions. The receptive field stays the same."""
    for block in stage:
        for part in block.modules():
            if isinstance(part, nn.Conv2d):
                part.stride = (1, 1)
                if part.kernel_size == (3, 3):
                    part.dilation = part.padding = (2, 2)
