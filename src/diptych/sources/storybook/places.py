"""Backgrounds: four places by day and night, in three kinds of weather."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diptych.sources.storybook.pencil import Pencil
from diptych.sources.storybook.world import SIDE


@lru_cache(maxsize=512)
def background(place: str, time: str, weather: str, variant: int, zoom: int = 1) -> NDArray[np.uint8]:
    pencil = Pencil(SIDE, SIDE, zoom, background=(150, 200, 240))
    tint = sum(map(ord, place + time + weather)) % 60 + variant
    pencil.box(0, 90, SIDE, SIDE, (120, 180 - tint, 90), line=None)
    return pencil.pixels()
