"""A scene's picture."""

from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from diptych.sources.storybook.places import background
from diptych.sources.storybook.sprites import sprite
from diptych.sources.storybook.truth import window
from diptych.sources.storybook.world import SIDE, Scene


def render(scene: Scene, zoom: int = 1) -> NDArray[np.uint8]:
    """The picture, (160 * zoom, 160 * zoom, 3) of 0 to 255, the same on every machine."""
    page = background(scene.place, scene.time, scene.weather, scene.variant, zoom).copy()
    for figure in scene.figures:
        drawn = sprite(figure, zoom)
        rows, columns, clear = window(figure.top * zoom, figure.left * zoom, drawn.clear, SIDE * zoom)
        _, _, pixels = window(figure.top * zoom, figure.left * zoom, drawn.pixels, SIDE * zoom)
        behind = page[rows, columns]
        page[rows, columns] = (behind * clear + 127) // 255 + pixels
    grained: NDArray[np.uint8] = np.clip(page + _grain(page.shape[0]), 0, 255).astype(np.uint8)
    return grained


@lru_cache(maxsize=4)
def _grain(side: int) -> NDArray[np.int16]:
    """A paper's grain, -4 to 4, from Python's own generator: NumPy does not promise its streams."""
    noise = np.frombuffer(Random("grain").randbytes(side * side), np.uint8).reshape(side, side, 1)
    return noise.astype(np.int16) % 9 - 4
