"""The examples of the page are files, so that the service does not import the drawn world."""

from io import BytesIO

import numpy as np
from PIL import Image

from diptych_serve.service.pictures import EXAMPLES, drawn_examples
from diptych_world.book import Storybook
from diptych_world.render import render

SEED = 2020  # of the scenes, which are from the split "test"; to make the files again, save `render(scene, 2)` as PNG


def test_the_examples_are_scenes_of_the_drawn_world() -> None:
    shown = [np.asarray(Image.open(BytesIO(content))) for content in drawn_examples().values()]
    assert len(shown) == EXAMPLES
    for found, scene in zip(shown, Storybook(SEED, "test", EXAMPLES), strict=True):
        assert np.array_equal(found, render(scene, 2))
