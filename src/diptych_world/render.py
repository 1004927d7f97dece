"""Render a scene to pixels."""

from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from diptych_world.pencil import Pencil
from diptych_world.places import background
from diptych_world.scenery import rain, snow
from diptych_world.sprites import Sprite, cut_out, sprite
from diptych_world.truth import window
from diptych_world.world import SIDE, Scene


def render(scene: Scene, zoom: int = 1) -> NDArray[np.uint8]:
    """Return the picture with the shape (160 * zoom, 160 * zoom, 3), values 0 to 255. It is equal on all machines."""
    page = background(scene.place, scene.time, scene.weather, scene.variant, zoom).copy()
    for figure in scene.figures:
        if figure.grounded:
            shadow = _soft_ellipse((figure.right - figure.left) * 0.42, zoom)
            height, width = shadow.mask.shape
            middle, bottom = (figure.left + figure.right) * zoom // 2, figure.bottom * zoom
            _paste(page, shadow, bottom - height // 2 - zoom, middle - width // 2)
        _paste(page, sprite(figure, zoom, night=scene.time == "night"), figure.top * zoom, figure.left * zoom)
    if scene.weather != "clear" and scene.place != "room":
        _paste(page, _falling(scene.weather, scene.variant % 4, zoom), 0, 0)
    lighter, darker = _grain(page.shape[0])
    # The noise is split into parts to add and to subtract, so bytes suffice: 7 times as fast as a clipped sum in int16.
    return page + np.minimum(255 - page, lighter) - np.minimum(page, darker)


def _paste(page: NDArray[np.uint8], drawn: Sprite, top: int, left: int) -> None:
    rows, columns, inside = window(top, left, drawn.mask.shape, page.shape[0])
    behind = np.multiply(page[rows, columns], drawn.clear[inside], dtype=np.uint16)
    page[rows, columns] = (behind + 127) // 255 + drawn.pixels[inside]


@lru_cache(maxsize=256)
def _soft_ellipse(across: float, zoom: int) -> Sprite:
    """Return the shadow of an object: a soft ellipse with the horizontal radius `across`."""
    down = 1.6 + across * 0.07
    pencil = Pencil(2 * across + 4, 2 * down + 4, zoom)
    for grown, opacity in ((1.6, 26), (0.4, 34), (-1.0, 34)):
        radii = across + grown, max(0.6, down + grown * 0.6)
        pencil.ellipse(across + 2, down + 2, *radii, (20, 16, 36), line=None, opacity=opacity)
    return cut_out(pencil.pixels())


@lru_cache(maxsize=16)
def _falling(weather: str, variant: int, zoom: int) -> Sprite:
    """Return a layer of rain or snow to draw in front of everything."""
    pencil, rng = Pencil(SIDE, SIDE, zoom), Random(f"{weather} {variant}")
    (rain if weather == "rain" else snow)(pencil, rng, (0, 0, SIDE, SIDE), 90 if weather == "rain" else 110)
    return cut_out(pencil.pixels())


@lru_cache(maxsize=4)
def _grain(side: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return noise like the grain of paper, -4 to 4, as two arrays (side, side, 3): values to add, values to subtract.

    It uses Python's random generator, because NumPy does not guarantee equal numbers in all versions.
    """
    noise = np.frombuffer(Random("grain").randbytes(side * side), np.uint8).reshape(side, side, 1)
    grain = np.repeat(noise.astype(np.int16) % 9 - 4, 3, 2)
    return grain.clip(min=0).astype(np.uint8), (-grain).clip(min=0).astype(np.uint8)
