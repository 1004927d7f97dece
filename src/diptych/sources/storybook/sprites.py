"""Every drawing of a thing, kept once drawn: a scene is put together from these."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diptych.sources.storybook.drawings import DRAWINGS
from diptych.sources.storybook.kinds import KINDS, SIZES
from diptych.sources.storybook.pencil import PAINT, Pencil
from diptych.sources.storybook.world import Figure


@dataclass(frozen=True)
class Sprite:
    """A drawing cut out: pixels are multiplied by their opacity."""

    pixels: NDArray[np.uint8]  # (h, w, 3)
    clear: NDArray[np.uint16]  # (h, w, 1), 255 where what is behind shows through
    mask: NDArray[np.bool_]  # (h, w), where it covers more than half


def sprite(figure: Figure, zoom: int = 1) -> Sprite:
    """The drawing of a thing, `zoom` times as large as in the picture of standard size."""
    manner = (figure.pose, figure.look, figure.holding)
    return _sprite(figure.kind, figure.colour, manner, figure.mirrored, SIZES[figure.size] * zoom)


@lru_cache(maxsize=8192)  # a medium one is about 10 kB
def _sprite(kind: str, colour: str, manner: tuple[str, int, bool], mirrored: bool, scale: float) -> Sprite:
    pencil = Pencil(KINDS[kind].width, KINDS[kind].height, scale)
    DRAWINGS[kind](pencil, PAINT[colour], *manner)
    pixels = pencil.pixels()
    if mirrored:
        pixels = pixels[:, ::-1]
    opacity = pixels[..., 3]
    return Sprite(
        pixels=np.ascontiguousarray(pixels[..., :3]),
        clear=np.ascontiguousarray(255 - opacity[..., None].astype(np.uint16)),
        mask=np.ascontiguousarray(opacity > 127),
    )
