"""Cached drawings of single objects, from which scenes are composed."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diptych_world.drawings import Manner, draw
from diptych_world.kinds import KINDS, SIZES
from diptych_world.pencil import PAINT, Pencil
from diptych_world.world import Figure

MOONLIGHT = (204, 208, 236)  # colour factors x 256: dim and bluish, but red stays red


@dataclass(frozen=True)
class Sprite:
    """A drawing without background. Pixels are premultiplied by their opacity."""

    pixels: NDArray[np.uint8]  # (h, w, 3)
    clear: NDArray[np.uint8]  # (h, w, 3), transparency in three equal channels; 255: fully transparent
    mask: NDArray[np.bool_]  # (h, w), True where opacity is above 0.5


def sprite(figure: Figure, zoom: int = 1, night: bool = False) -> Sprite:
    """Return the drawing of an object, `zoom` times as large as in a picture of 160 x 160."""
    manner = Manner(figure.pose, figure.look, figure.holding)
    return _sprite(figure.kind, figure.colour, manner, figure.mirrored, SIZES[figure.size] * zoom, night)


@lru_cache(maxsize=8192)  # the sprite of a medium object takes about 10 kB
def _sprite(kind: str, colour: str, manner: Manner, mirrored: bool, scale: float, night: bool) -> Sprite:
    pixels = _drawn(kind, colour, manner, scale)
    return cut_out(pixels[:, ::-1] if mirrored else pixels, MOONLIGHT if night else None)


@lru_cache(maxsize=4096)
def _drawn(kind: str, colour: str, manner: Manner, scale: float) -> NDArray[np.uint8]:
    pencil = Pencil(KINDS[kind].width, KINDS[kind].height, scale)
    draw(kind, pencil, PAINT[colour], manner)
    return pencil.pixels()


def cut_out(pixels: NDArray[np.uint8], light: tuple[int, int, int] | None = None) -> Sprite:
    """Convert the pixels of a page, (h, w, 4), to a sprite. `light`: factors of the colours, x 256."""
    colours, opacity = pixels[..., :3], pixels[..., 3]
    if light is not None:
        colours = (colours * np.array(light, np.uint16) >> 8).astype(np.uint8)
    clear = np.repeat(255 - opacity[..., None], 3, 2)
    return Sprite(np.ascontiguousarray(colours), clear, np.ascontiguousarray(opacity > 127))
