"""Combine the user's decoding options with a recipe's."""

from typing import Any

from diptych.models.decoding.options import DecodingOptions
from diptych.runtime.configs import validated

SAMPLING = {"temperature", "top_k", "top_p"}


def chosen_decoding(decoding: DecodingOptions, captions: int, sample: bool = False, **given: Any) -> DecodingOptions:
    """Return the recipe's options `decoding`, overridden by the user's options `given`.

    Raises RecipeError if options contradict each other.

    `temperature`, `top_k` or `top_p` turn sampling on, which replaces the recipe's beam search. The number of beams is
    raised to `captions`. Setting one of `length_penalty` and `length_bonus` sets the other to 0.
    """
    values = decoding.model_dump() | {"captions": None if captions == 1 else captions}
    given = {name: value for name, value in given.items() if value is not None}
    if sample or SAMPLING & given.keys():
        values |= {"sample": True, "beams": 1, "captions": captions}
    values |= given
    if not values["sample"]:
        values["beams"] = max(values["beams"], captions)
    for one, other in (("length_penalty", "length_bonus"), ("length_bonus", "length_penalty")):
        if one in given and other not in given:
            values[other] = 0.0
    return validated(DecodingOptions, values, "decoding")
