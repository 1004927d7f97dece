"""Compute the ground truth of a layout: the visible part of each object, and relations between objects."""

from dataclasses import replace

import numpy as np

from diptych_world.sprites import sprite
from diptych_world.world import SIDE, Figure

Relations = tuple[tuple[int, str, int], ...]
_SIDE_DISTANCE = 14  # `left of` needs this distance in pixels between the centres of two objects
_NEAR = 7  # `near` allows this distance in pixels between two boxes


def seen(figures: tuple[Figure, ...], links: Relations, least: float) -> tuple[tuple[Figure, ...], Relations]:
    """Return the figures whose visible share is at least `least`, boxed where visible, and the links between them.

    The figure that is hidden most is removed first. Then all other figures are measured again, because the removed
    figure may have covered them.
    """
    while True:
        figures = _measured(figures)
        hidden = min(range(len(figures)), key=lambda i: figures[i].visible, default=None)
        if hidden is None or figures[hidden].visible >= least:
            return figures, links
        figures = (*figures[:hidden], *figures[hidden + 1 :])
        links = tuple(
            (a - (a > hidden), relation, b - (b > hidden)) for a, relation, b in links if hidden not in (a, b)
        )


def _measured(figures: tuple[Figure, ...]) -> tuple[Figure, ...]:
    """Return the figures with `box` and `visible` computed from their visible pixels."""
    owner = np.zeros((SIDE, SIDE), np.uint8)
    windows = []
    for number, figure in enumerate(figures, start=1):
        mask = sprite(figure).mask
        rows, columns, inside = window(figure.top, figure.left, mask.shape, SIDE)
        owner[rows, columns][mask[inside]] = number
        windows.append((rows, columns))
    measured = []
    for number, (figure, (rows, columns)) in enumerate(zip(figures, windows, strict=True), start=1):
        mine = owner[rows, columns] == number
        down, across = mine.any(1).nonzero()[0], mine.any(0).nonzero()[0]
        if not len(down):
            measured.append(replace(figure, visible=0.0))
            continue
        left, top = columns.start, rows.start
        box = left + int(across[0]), top + int(down[0]), left + int(across[-1]) + 1, top + int(down[-1]) + 1
        share = round(int(mine.sum()) / max(1, int(sprite(figure).mask.sum())), 4)
        measured.append(replace(figure, box=box, visible=share))
    return tuple(measured)


def window(top: int, left: int, shape: tuple[int, ...], side: int) -> tuple[slice, slice, tuple[slice, slice]]:
    """Return the overlap of a drawing and the picture: rows and columns of the picture, then those of the drawing."""
    height, width = shape[:2]
    rows = slice(max(0, top), min(side, top + height))
    columns = slice(max(0, left), min(side, left + width))
    inside = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
    return rows, columns, inside


def relations_between(figures: tuple[Figure, ...], links: Relations) -> Relations:
    """Return the links inside groups, and relations computed from the boxes: left of, right of, above, near."""
    relations = list(links)
    linked = {frozenset((a, b)) for a, _, b in links}
    for i, first in enumerate(figures):
        for j in range(i + 1, len(figures)):
            if frozenset((i, j)) in linked:
                continue
            second = figures[j]
            distance = second.centre[0] - first.centre[0]
            if abs(distance) >= _SIDE_DISTANCE:
                before, after = (i, j) if distance > 0 else (j, i)
                relations += [(before, "left of", after), (after, "right of", before)]
            relations += _above_or_near(i, first, j, second)
    return tuple(relations)


def _above_or_near(i: int, first: Figure, j: int, second: Figure) -> list[tuple[int, str, int]]:
    a, b = first.box, second.box
    gap_x, gap_y = max(a[0], b[0]) - min(a[2], b[2]), max(a[1], b[1]) - min(a[3], b[3])
    if gap_y >= 0 and gap_x < 0:
        return [(i, "above", j) if a[1] < b[1] else (j, "above", i)]
    if gap_x <= _NEAR and gap_y < 0 and abs(a[3] - b[3]) < 12:
        return [(i, "near", j), (j, "near", i)]
    return []
