"""What recipes for photographs of one's own change of the small ones: words of people, and runs as long as they help.

The small recipes are for drawn scenes, whose captions have about ten words out of few hundred. docs/photographs.md says
what was measured of these, and on what.
"""

from __future__ import annotations

from collections.abc import Callable

from diptych.runtime.configs import derive
from diptych.systems.recipe import Recipe

WORDS = 30  # of a caption at most, as the tokeniser cuts them


def photos(small: Callable[[], Recipe]) -> Recipe:
    """For some thousand photographs: longer captions, a run that ends when validation no longer rises, no loops.

    `small` makes the recipe of the same task for drawn scenes.
    """
    recipe = small()
    return derive(
        recipe,
        name=recipe.name.replace("/small/", "/photos/"),
        model={"positions": 96, "dropout": 0.1, "attention_dropout": 0.1},
        training={"steps": 6000, "validate_every": 500, "checkpoint_every": 500, "patience": 4},
        data={"max_words": WORDS, "validation_records": 500},
        decoding={"beams": 3, "max_words": WORDS, "no_repeat_ngram": 3},
    )
