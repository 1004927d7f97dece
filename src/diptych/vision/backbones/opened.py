"""What a library hands over of a backbone: the network, and how it reads pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from diptych.runtime.errors import RecipeError

# ImageNet's; every backbone of torchvision and most of timm's were trained with them.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224
Three = tuple[float, float, float]


@dataclass(frozen=True)
class Reading:
    """How pictures come to a backbone: squares of this side, each colour less its mean, over its deviation."""

    side: int = SIDE
    mean: Three = MEAN
    deviation: Three = DEVIATION


@dataclass(frozen=True)
class OpenedNetwork:
    """A network as its library hands it over. `config`: what besides its name says how to build it again."""

    trunk: nn.Module  # pixels (B, 3, side, side) to a map (B, F, h, w)
    reading: Reading
    config: Mapping[str, Any] = field(default_factory=dict)


def as_map(found: Float[Tensor, "B N F"], cells: int | None = None) -> Float[Tensor, "B F n n"]:
    """The tokens of a transformer as the square map that they are; class token and registers, which come first, are
    left out. `cells`: how many of the tokens are cells; None: the largest square number."""
    batch, count, width = found.shape
    side = isqrt(count if cells is None or cells > count else cells)
    return found[:, count - side * side :].transpose(1, 2).reshape(batch, width, side, side)


def three(key: str, value: Any) -> Three:
    """A number for each colour, or one for all."""
    values = (value,) * 3 if isinstance(value, int | float) else value
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(v, int | float) for v in values):
        raise RecipeError(f"{key}={value!r}; wanted a number for each of three colours, such as [0.5,0.5,0.5]")
    if key == "deviation" and not all(v > 0 for v in values):
        raise RecipeError(f"{key}={value!r}; wanted numbers over 0")
    return cast(Three, tuple(map(float, values)))
