"""How captions are written where the command line asks for it in another way than the recipe does."""

from typing import Any

from diptych.models.decoding.options import DecodingOptions
from diptych.runtime.configs import validated


def chosen_decoding(decoding: DecodingOptions, captions: int, sample: bool, **given: Any) -> DecodingOptions:
    """The recipe's way of writing with what was asked for in its place; RecipeError where that cannot be.

    Drawn captions leave the recipe's search behind, and several captions want as many beams.
    """
    values = decoding.model_dump() | {"captions": None if captions == 1 else captions}
    if sample:
        values |= {"sample": True, "beams": 1, "captions": captions}
    given = {name: value for name, value in given.items() if value is not None}
    values |= given
    if not values["sample"]:
        values["beams"] = max(values["beams"], captions)
    for one, other in (("length_penalty", "length_bonus"), ("length_bonus", "length_penalty")):
        if one in given and other not in given:
            values[other] = 0.0
    return validated(DecodingOptions, values, "decoding")
