"""Types of the methods of `Model`: an image gives a result, a list gives a list, an iterator gives an iterator.

The decorators take the type of a result and return the method unchanged. Type checkers and editors see the overloads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diptych.core import Record

if TYPE_CHECKING:
    from diptych.api.dataset import Example

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Vectors = NDArray[np.float32]
# The type of an array does not show whether it is one image or N images (N, H, W, 3). Here it counts as one image.
OneImage: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any] | Tensor | "
    "Mapping[str, Any] | Record | Example"
)


# A path (str) also matches Iterable, so the overload for a single image must be the first.
class PerImage(Protocol[P, R]):
    """A method that returns one result for one image, a list for a list, and an iterator for an iterator."""

    @overload
    def __call__(self, images: OneImage, /, *args: P.args, **options: P.kwargs) -> R: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, images: Iterator[Any], /, *args: P.args, **options: P.kwargs) -> Iterator[R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, images: Iterable[Any], /, *args: P.args, **options: P.kwargs) -> list[R]: ...


class PerText(Protocol[R]):
    """A method on images and texts.

    One image and one text give one result; several images or texts give a list or an iterator.
    """

    @overload
    def __call__(self, images: OneImage, texts: str, /) -> R: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, images: OneImage, texts: Iterator[str], /) -> Iterator[R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, images: OneImage, texts: Iterable[str], /) -> list[R]: ...
    @overload
    def __call__(self, images: Iterator[Any], texts: Iterable[str], /) -> Iterator[R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, images: Iterable[Any], texts: Iterable[str], /) -> list[R]: ...


class _Bound(Protocol[R_co]):
    """A decorated method. Like a function, it binds to an instance on access."""

    def __get__(self, instance: Any, owner: type | None = None) -> R_co: ...


def per_image(_: type[R]) -> Callable[[Callable[Concatenate[Any, Any, P], Any]], _Bound[PerImage[P, R]]]:
    return lambda method: method


def per_text(_: type[R]) -> Callable[[Callable[[Any, Any, Any], Any]], _Bound[PerText[R]]]:
    return lambda method: method
