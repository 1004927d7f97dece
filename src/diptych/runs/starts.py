"""How a run begins from the weights of others (`init` and `network_init` of a recipe)."""

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


def begin(model: SystemModel, system: str, source: str) -> ImportReport:
    """Begin from weights of BERT or of another system, as `SYSTEMS` says how (`init` of a recipe)."""
    start = SYSTEMS[system].start
    if start is None:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    with read_as_weights(source):
        return start(model, source)


def begin_network(model: SystemModel, system: str, source: str, colours: Colours) -> ImportReport:
    """The part that reads pixels, from a detector folder or a file of weights; the rest stays as it is."""
    start = SYSTEMS[system].start_network
    if start is None or not model.config.reads_pixels:
        raise RecipeError(
            "network_init is what a network begins as, and the model reads no pixels; set model.network too"
        )
    with read_as_weights(source):
        return start(model, source, colours)


def words_of(settings: Sequence[str]) -> list[str]:
    """More settings of a recipe, where `init` is a folder or a name on the hub: its weights know one vocabulary."""
    given = dict(one.partition("=")[::2] for one in settings)
    source = given.get("init", "none")
    with suppress(ValueError):  # a text may stand without its quotes
        source = str(parse_json(source))
    found = None if source == "none" or "data.vocabulary" in given else find_words(source)
    if found is None:
        return []
    more: dict[str, object] = {"data.vocabulary": str(found[0])}
    if found[1] is not None:
        more["data.lowercase"] = found[1]
    return [f"{key}={json.dumps(value)}" for key, value in more.items() if key not in given]
