"""The settings of decoding, with their meanings and limits.

Recipes, requests to the service, command-line options and the arguments of `Model.caption` are derived from them.
"""

from typing import Any, NamedTuple

# The smallest temperature and top_p. Smaller values overflow, and always draw the most probable token.
LEAST = 0.001


class DecodingSetting(NamedTuple):
    """A setting of decoding: its help text, and its limits by pydantic's names, such as `ge`.

    Words are counted in tokens.
    """

    help: str  # help text: one sentence without its full stop
    limits: dict[str, Any]


SETTINGS = {
    "beams": DecodingSetting("Beams of the search, 1 being greedy", {"ge": 1}),
    "min_words": DecodingSetting("Fewest words of a text", {"ge": 0}),
    "max_words": DecodingSetting("Most words of a text, its end counted as one", {"ge": 1}),
    "length_bonus": DecodingSetting("Number added to a beam's log-probability for each word", {}),
    "length_penalty": DecodingSetting("Power of the length that divides a beam's log-probability", {"ge": 0}),
    "no_repeat_ngram": DecodingSetting("Never repeat this many words in a row in a text", {"ge": 1}),
    "temperature": DecodingSetting("Draw words at this temperature: below 1 the likely more often", {"ge": LEAST}),
    "top_k": DecodingSetting("Draw each word from this many likeliest ones", {"ge": 1}),
    "top_p": DecodingSetting("Draw each word from the fewest of this total probability", {"ge": LEAST, "le": 1}),
}


def decoding_field(name: str, default: Any = None, **limits: Any) -> Any:
    """Return a pydantic field for the setting `name`. `limits`: narrower limits, such as those of the service."""
    from pydantic import Field

    one = SETTINGS[name]
    return Field(default=default, description=f"{one.help}.", **{**one.limits, **limits})
