"""Convert outlines of objects, as in VCR and COCO, to binary masks on a grid over the object's box."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from diptych.core import MASK_CELLS
from diptych.data.formats.values import Number

Outlines: TypeAlias = list[list[tuple[Number, Number]]]  # polygons [[(x, y), ...], ...] in pixels


def mask_of(
    outlines: Outlines, box: Sequence[float], width: int, height: int, cells: int = MASK_CELLS
) -> tuple[str, ...]:
    """Return a mask of `cells` x `cells` as in `Object.mask`.

    `box` is (x1, y1, x2, y2) in fractions of the image, and polygons are in pixels. A cell is set if its centre is in
    one of the polygons. Polygons with fewer than three corners are ignored. If no cell is set, the mask is (), which
    means that it is unknown.
    """
    size = np.array([width, height], dtype=np.float64)
    start, end = np.array(box[:2]) * size, np.array(box[2:]) * size
    centres = (np.arange(cells) + 0.5) / cells
    across, down = (start[axis] + centres * (end - start)[axis] for axis in (0, 1))
    shown = np.zeros((cells, cells), dtype=bool)
    for outline in outlines:
        if len(outline) > 2:
            shown |= _inside(np.array(outline), *np.meshgrid(across, down))
    return tuple("".join("#" if cell else "." for cell in row) for row in shown) if shown.any() else ()


def _inside(corners: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each point whether it is in the polygon, by ray casting.

    From inside, a ray to the right crosses the outline an odd number of times.
    """
    inside = np.zeros(x.shape, dtype=bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, 0), strict=True):
        if y1 != y2:
            inside ^= ((y1 > y) != (y2 > y)) & (x < x1 + (y - y1) * (x2 - x1) / (y2 - y1))
    return inside
