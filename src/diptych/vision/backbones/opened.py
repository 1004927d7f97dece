"""The class `OpenedNetwork`, which the module of each library returns, and helpers that these modules share."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isqrt
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import CheckpointError, RecipeError, explained, nearest

# ImageNet's mean and standard deviation, used in training by all backbones of torchvision and most of timm.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224
# Errors that the libraries raise for a file without the model's weights.
UNREADABLE = (RuntimeError, StopIteration, EOFError, SafetensorError, UnpicklingError)
WITH_OPTION = "with --weights"
Three = tuple[float, float, float]


@dataclass(frozen=True)
class OpenedNetwork:
    """A network opened by its library.

    Its input is a square image, normalised per colour with `mean` and `deviation`.
    """

    trunk: nn.Module  # pixels (B, 3, side, side) -> feature map (B, F, h, w)
    side: int = SIDE  # side of the input in pixels
    mean: Three = MEAN
    deviation: Three = DEVIATION
    config: Mapping[str, Any] = field(default_factory=dict)  # further values that `built` needs


@contextmanager
def reading_weights(name: str, weights: Path | None, address: str, option: str = WITH_OPTION) -> Iterator[None]:
    """Convert a library's errors to CheckpointError while it reads the file `weights`, or downloads weights (None).

    `option`: how the user passes a file, for errors.
    """
    if weights is None:
        remedy = f"download {address} on a machine with a network, and pass the file {option}"
        with downloading(f"the weights of {name}", remedy):
            yield
        return
    remedy = "pass a .safetensors file, or a .pt file that holds only tensors"
    with explained(CheckpointError, f"{weights} does not hold weights of {name}", remedy, *UNREADABLE):
        yield


def refuse_unknown(settings: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise RecipeError if one of `settings` is not in `known`. `what`: the network or detector, for the error."""
    for key in settings:
        if key not in known:
            raise RecipeError(f"{what} has no setting {key!r}; {nearest(key, known)}")


def as_map(tokens: Float[Tensor, "B N F"], cells: int | None = None) -> Float[Tensor, "B F n n"]:
    """Reshape a transformer's tokens to a square map. Leading tokens (class, registers) are dropped.

    `cells`: number of tokens that belong to the map; None: the largest possible square number.
    """
    batch, count, width = tokens.shape
    side = isqrt(count if cells is None or cells > count else cells)
    return tokens[:, count - side * side :].transpose(1, 2).reshape(batch, width, side, side)


def three(key: str, value: Any) -> Three:
    """Return three numbers, one per colour, from a setting with one or three numbers.

    Raises RecipeError if it is invalid.
    """
    values = (value,) * 3 if isinstance(value, int | float) else value
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(v, int | float) for v in values):
        raise RecipeError(f"{key}={value!r}; expected one number, or three (one per colour), such as [0.5,0.5,0.5]")
    if key == "deviation" and not all(v > 0 for v in values):
        raise RecipeError(f"{key}={value!r}; expected numbers above 0")
    return cast(Three, tuple(map(float, values)))
