"""Initialise a model from other weights (`init` and `network_init` of a recipe)."""

import json
from collections.abc import Sequence
from contextlib import suppress

from diptych.data.store.pixels import Colours
from diptych.models import SystemModel
from diptych.models.weights import ImportReport, read_as_weights
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import parse_json
from diptych.runtime.weight_files import find_words
from diptych.systems import SYSTEMS


def initialise(model: SystemModel, system: str, source: str) -> ImportReport:
    """Load weights of BERT or another system, by the system's entry in `SYSTEMS` (`init` of a recipe)."""
    begin = SYSTEMS[system].start
    if begin is None:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    with read_as_weights(source):
        return begin(model, source)


def initialise_network(model: SystemModel, system: str, source: str, colours: Colours) -> ImportReport:
    """Load the network that reads pixels from a detector folder or weights file (`network_init` of a recipe)."""
    begin = SYSTEMS[system].start_network
    if begin is None or not model.config.reads_pixels:
        raise RecipeError(
            "network_init has weights of a network that reads pixels, but the model has no such network; set "
            "model.network too"
        )
    with read_as_weights(source):
        return begin(model, source, colours)


def vocabulary_settings(settings: Sequence[str]) -> list[str]:
    """Return recipe settings for the vocabulary of `init`, if that is a folder or a name on the hub."""
    given = dict(one.partition("=")[::2] for one in settings)
    source = given.get("init", "none")
    with suppress(ValueError):  # the value may lack its quotes
        source = str(parse_json(source))
    words = None if source == "none" or "data.vocabulary" in given else find_words(source)
    if words is None:
        return []
    more: dict[str, object] = {"data.vocabulary": str(words[0])}
    if words[1] is not None:
        more["data.lowercase"] = words[1]
    return [f"{key}={json.dumps(value)}" for key, value in more.items() if key not in given]
