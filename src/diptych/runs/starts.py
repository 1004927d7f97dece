"""How a run begins from the weights of others (`init` and `network_init` of a recipe)."""

from __future__ import annotations

from diptych.errors import RecipeError
from diptych.loading.pixels import Colours
from diptych.models import SYSTEMS, SystemModel
from diptych.models.weights import Report


def begin(model: SystemModel, system: str, source: str) -> Report:
    """Begin from weights of BERT or of another system, as `SYSTEMS` says how (`init` of a recipe)."""
    start = SYSTEMS[system].start
    if start is None:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    return start(model, source)


def begin_network(model: SystemModel, system: str, source: str, colours: Colours) -> Report:
    """The part that reads pixels, from a detector folder or a file of weights; the rest stays as it is."""
    start = SYSTEMS[system].start_network
    if start is None or not model.config.reads_pixels:
        raise RecipeError(
            "network_init is what a network begins as, and the model reads no pixels; set model.network too"
        )
    return start(model, source, colours)
