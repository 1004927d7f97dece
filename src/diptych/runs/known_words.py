"""The settings of a recipe that follow from the files of `init`: vocabulary, sizes and optimizer."""

import json
from collections.abc import Sequence

from diptych.data.store.tokens import Tokens
from diptych.runtime.configs import value_of
from diptych.runtime.errors import RecipeError
from diptych.runtime.weight_files import find_words
from diptych.systems import SYSTEMS
from diptych.systems.bert import read_sizes
from diptych.systems.recipe import OF_PAPER, Recipe

BERT_RATE = 2e-4  # AdamW's learning rate from weights of BERT (docs/photographs-reference.md)


def vocabulary_settings(settings: Sequence[str]) -> list[str]:
    """Return settings for the vocabulary of `init`, unless that is a file of weights, which has none."""
    given, source = _given(settings)
    words = None if source is None or "data.vocabulary" in given else find_words(source)
    if words is None:
        return []
    path, lowercase = words
    if path.suffix != ".txt":
        lowercase = Tokens.load(path).lowercase
    more: dict[str, object] = {"data.vocabulary": str(path)}
    if lowercase is not None:
        more["data.lowercase"] = lowercase
    return [f"{key}={json.dumps(value)}" for key, value in more.items() if key not in given]


def bert_settings(recipe: Recipe, settings: Sequence[str]) -> list[str]:
    """Return settings for the sizes of `init`, from its config.json, and for an optimizer that suits trained weights.

    Muon is for random weights: a recipe with Muon gets AdamW with a learning rate of 2e-4. Raises RecipeError if
    `settings` have another size, and CheckpointError if config.json is not of a BERT.
    """
    given, source = _given(settings)
    depth = SYSTEMS[recipe.system].depth
    sizes = {} if source is None else read_sizes(source, depth)
    if not recipe.model.model_dump().get(depth):  # TDEN with one stream has no sentence encoder
        sizes.pop(f"model.{depth}", None)
    for key, value in sizes.items():
        if value_of(given.get(key, str(value))) != value:
            raise RecipeError(f"--set {key}={given[key]}: {source} has {value}; leave this setting out")
    changes: dict[str, object] = {key: value for key, value in sizes.items() if key not in given}
    if sizes and recipe.optimizer.kind == "muon" and "optimizer.kind" not in given:
        changes |= {"optimizer.kind": "adamw"} | ({} if "optimizer.lr" in given else {"optimizer.lr": BERT_RATE})
    return [f"{key}={value}" for key, value in changes.items()]


def _given(settings: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """Return the settings as a dict, and the value of `init` among them (None: no weights)."""
    given = dict(one.partition("=")[::2] for one in settings)
    source = str(value_of(given.get("init", "none")))
    return given, None if source == "none" or source.startswith(OF_PAPER) else source
