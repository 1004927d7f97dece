"""torchvision's operators, such as non-maximum suppression (NMS), without `import torchvision`, which takes seconds.

The import is slow because torchvision loads its models, its transforms and torch's compiler. The operators are in
a shared library in torchvision's folder. Only this library is loaded.
"""

from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGE = 1000  # above this number of boxes, torchvision runs NMS class by class


def nms(boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], overlap: float) -> Int[Tensor, "K"]:
    """Return the indices of the boxes that NMS keeps, highest score first.

    `overlap`: the IoU above which a box is dropped.
    """
    return cast(Tensor, kernels().nms(boxes, scores, overlap))


def batched_nms(
    boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], classes: Int[Tensor, "N"], overlap: float
) -> Int[Tensor, "K"]:
    """Like `nms`, but boxes suppress only boxes of the same class.

    The boxes of each class are shifted so that boxes of different classes do not overlap.
    """
    if len(boxes) > LARGE:
        from torchvision.ops import batched_nms as by_class

        return cast(Tensor, by_class(boxes, scores, classes, overlap))
    if not len(boxes):
        return classes.new_zeros(0)
    return nms(boxes + (classes * (boxes.max() + 1))[:, None].to(boxes), scores, overlap)


@cache
def kernels() -> Any:
    """Return torchvision's operators `nms`, `roi_align` and so on, which take all arguments by position."""
    package = find_spec("torchvision")
    for folder in (package and package.submodule_search_locations) or ():
        for library in Path(folder).glob("_C*.so"):
            with suppress(OSError):  # of another version of torch, say; then the package is imported, and explains
                torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    if not hasattr(torch.ops.torchvision, "nms"):  # no _C*.so has the kernels
        import torchvision.ops  # noqa: F401
    return torch.ops.torchvision
