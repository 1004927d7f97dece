"""The ResNets and ResNeXts of the official detectors. The normalisation layers are folded into the convolutions.

Folding is exact, because the normalisation is a fixed scale and shift (stored statistics, or Detectron's
AffineChannel). `ResNetShape` has the sizes of a network, inferred from its weights. Networks also differ in the
convolution that has a block's stride.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from diptych.runtime.errors import CheckpointError

Stride = Literal["1x1", "3x3"]
BLOCK = re.compile(r"res(\d)\.(\d+)\.(conv1|conv2|conv3|shortcut)\.weight")
FIRST_STAGE = 2  # the four stages are called res2 to res5


@dataclass(frozen=True)
class ResNetStage:
    """Sizes of one ResNet stage."""

    blocks: int
    read: int  # channels of the stage's input
    inner: int
    out: int
    groups: int
    shortcut: bool  # True: the shortcut of the first block has a convolution


@dataclass(frozen=True)
class ResNetShape:
    """Sizes of a ResNet without its classifier."""

    stem: int  # channels of the stem's output
    stages: tuple[ResNetStage, ...]

    @classmethod
    def of(cls, sizes: Mapping[str, tuple[int, ...]], source: str) -> ResNetShape:
        """Infer the sizes from the shapes of tensors such as `stem.weight` and `res2.0.conv1.weight`.

        Raises CheckpointError.
        """
        numbers: dict[int, set[str]] = {}
        for name in sizes:
            if match := BLOCK.fullmatch(name):
                numbers.setdefault(int(match[1]), set()).add(match[2])
        # If the blocks are not numbered 0, 1, 2, ..., `fill` raises the error later.
        blocks = {stage: len(some) for stage, some in numbers.items()}
        wanted = range(FIRST_STAGE, FIRST_STAGE + 4)
        if "stem.weight" not in sizes or sorted(blocks) != list(wanted):
            stages = ", ".join(f"res{number}" for number in sorted(blocks)) or "no stage"
            raise CheckpointError(f"{source} has {stages} of a ResNet, expected a stem and res2 to res5; copy it again")
        return cls(sizes["stem.weight"][0], tuple(_stage(sizes, number, blocks[number], source) for number in wanted))


def _stage(sizes: Mapping[str, tuple[int, ...]], number: int, blocks: int, source: str) -> ResNetStage:
    try:
        inner, read = sizes[f"res{number}.0.conv1.weight"][:2]
        out = sizes[f"res{number}.0.conv3.weight"][0]
        groups = inner // sizes[f"res{number}.0.conv2.weight"][1]
    except KeyError as error:
        raise CheckpointError(f"{source} has no bottlenecks in res{number}: it lacks {error}; copy it again") from error
    return ResNetStage(blocks, read, inner, out, groups, f"res{number}.0.shortcut.weight" in sizes)


def pool_stem(x: Float[Tensor, "B c h w"], padded: bool) -> Float[Tensor, "B c h2 w2"]:
    """Apply the stem's max pooling, 3 x 3 with stride 2.

    `padded`: True to pad by 1 (Detectron); False to round the output size up instead (Caffe).
    """
    return max_pool2d(x, 3, 2, 1) if padded else max_pool2d(x, 3, 2, 0, ceil_mode=True)


class Bottleneck(nn.Module):
    """A bottleneck block. `where`: the convolution that has the stride, 1x1 or 3x3."""

    def __init__(self, stage: ResNetStage, first: bool, stride: int, where: Stride, dilation: int) -> None:
        super().__init__()
        read, stride = (stage.read, stride) if first else (stage.out, 1)
        of_1x1, of_3x3 = (stride, 1) if where == "1x1" else (1, stride)
        self.conv1 = nn.Conv2d(read, stage.inner, 1, of_1x1)
        self.conv2 = nn.Conv2d(stage.inner, stage.inner, 3, of_3x3, dilation, dilation, stage.groups)
        self.conv3 = nn.Conv2d(stage.inner, stage.out, 1)
        self.shortcut = nn.Conv2d(read, stage.out, 1, stride) if first and stage.shortcut else None

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv2(self.conv1(x).relu_()).relu_()
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return cast(Tensor, self.conv3(inner).add_(shortcut).relu_())


def make_stage(stage: ResNetStage, stride: int, where: Stride, dilation: int = 1) -> nn.Sequential:
    """Build the blocks of a stage. The first block has the stride."""
    return nn.Sequential(*(Bottleneck(stage, n == 0, stride, where, dilation) for n in range(stage.blocks)))


def folded(
    weight: Float[Tensor, "out group k l"], scale: Float[Tensor, "out"], shift: Float[Tensor, "out"]
) -> tuple[Tensor, Tensor]:
    """Fold `x * scale + shift` into the convolution before it. The convolution has no bias.

    Return the new weight and bias.
    """
    return (weight.double() * scale.double()[:, None, None, None]).float(), shift.float()


def batch_norm(weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale and shift per channel that equal a batch norm with stored statistics."""
    scale = weight.double() * (variance.double() + 1e-5).rsqrt()
    return scale, bias.double() - mean.double() * scale


def sizes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor, by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
