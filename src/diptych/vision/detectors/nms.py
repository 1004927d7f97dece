"""torchvision's non-maximum suppression without `import torchvision`, which takes seconds.

The package imports its models, its transforms and torch's compiler. The kernels are a separate library in its folder.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGE = 1000  # boxes; above this torchvision runs class by class


def nms(boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], overlap: float) -> Int[Tensor, "K"]:
    """Return the indices of boxes that no better box overlaps with an IoU over `overlap`, best first."""
    _load_kernels()
    return cast(Tensor, torch.ops.torchvision.nms(boxes, scores, overlap))


def batched_nms(
    boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], classes: Int[Tensor, "N"], overlap: float
) -> Int[Tensor, "K"]:
    """Like `nms` within each class: the boxes of each class are shifted to an area of their own."""
    if len(boxes) > LARGE:
        from torchvision.ops import batched_nms as by_class

        return cast(Tensor, by_class(boxes, scores, classes, overlap))
    if not len(boxes):
        return classes.new_zeros(0)
    return nms(boxes + (classes * (boxes.max() + 1))[:, None].to(boxes), scores, overlap)


@cache
def _load_kernels() -> None:
    package = find_spec("torchvision")
    for folder in (package and package.submodule_search_locations) or ():
        for library in Path(folder).glob("_C*.so"):
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    if not hasattr(torch.ops.torchvision, "nms"):  # another build
        import torchvision.ops  # noqa: F401
