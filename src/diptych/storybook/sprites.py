"""Every drawing of a thing, kept once drawn: a scene is put together from these."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diptych.storybook.drawings import DRAWINGS, Manner
from diptych.storybook.kinds import KINDS, SIZES
from diptych.storybook.pencil import PAINT, Pencil
from diptych.storybook.world import Figure

MOONLIGHT = (204, 208, 236)  # dim and bluish, yet red stays red


@dataclass(frozen=True)
class Sprite:
    """A drawing cut out: pixels are multiplied by their opacity."""

    pixels: NDArray[np.uint8]  # (h, w, 3)
    clear: NDArray[np.uint8]  # (h, w, 3), thrice the same; 255 where what is behind shows through
    mask: NDArray[np.bool_]  # (h, w), where it covers more than half


def sprite(figure: Figure, zoom: int = 1, night: bool = False) -> Sprite:
    """The drawing of a thing, `zoom` times as large as in the picture of standard size."""
    manner = Manner(figure.pose, figure.look, figure.holding)
    return _sprite(figure.kind, figure.colour, manner, figure.mirrored, SIZES[figure.size] * zoom, night)


@lru_cache(maxsize=8192)  # a medium one is about 10 kB
def _sprite(kind: str, colour: str, manner: Manner, mirrored: bool, scale: float, night: bool) -> Sprite:
    pixels = _drawn(kind, colour, manner, scale)
    return cut_out(pixels[:, ::-1] if mirrored else pixels, MOONLIGHT if night else None)


@lru_cache(maxsize=4096)
def _drawn(kind: str, colour: str, manner: Manner, scale: float) -> NDArray[np.uint8]:
    pencil = Pencil(KINDS[kind].width, KINDS[kind].height, scale)
    DRAWINGS[kind](pencil, PAINT[colour], manner)
    return pencil.pixels()


def cut_out(pixels: NDArray[np.uint8], light: tuple[int, int, int] | None = None) -> Sprite:
    """A pencil's page as a sprite, its colours dimmed by a light of 256ths."""
    opacity = pixels[..., 3]
    colours = pixels[..., :3]
    if light is not None:
        colours = (colours * np.array(light, np.uint16) >> 8).astype(np.uint8)
    return Sprite(
        pixels=np.ascontiguousarray(colours),
        clear=np.repeat(255 - opacity[..., None], 3, 2),
        mask=np.ascontiguousarray(opacity > 127),
    )
