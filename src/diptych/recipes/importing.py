"""An official checkpoint -> a model folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from diptych.core import FeatureContract
from diptych.errors import RecipeError, nearest
from diptych.loading.tokens import Tokens
from diptych.models import SystemModel
from diptych.models.official import import_unified_vlp, start_from
from diptych.models.weights import Report, load_into
from diptych.recipes.folder import Architecture, ModelFolder

SYSTEMS = ("unified-vlp",)
# How a system begins from the weights of others (`init` of a recipe).
STARTS: dict[str, Callable[[Any, str], Report]] = {"unified-vlp": start_from}


def begin(model: SystemModel, system: str, source: str) -> Report:
    if system not in STARTS:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    return STARTS[system](model, source)


def import_checkpoint(system: str, file: Path, out: Path, vocabulary: Path, lowercase: bool) -> list[str]:
    """Write the model folder `out`; hands back one line for each key renamed, left or missing."""
    if system not in SYSTEMS:
        raise RecipeError(f"no importer for {system!r}; {nearest(system, SYSTEMS)}")
    if out.exists():
        raise RecipeError(f"{out} is there already; give another folder, or delete it")
    tokens = Tokens.from_vocabulary(vocabulary, lowercase)
    config, heads, tensors, report = import_unified_vlp(file, vocabulary, lowercase=lowercase)
    architecture = Architecture(system=system, config=config, heads=tuple(sorted(heads)))
    model = architecture.build()
    load_into(model, tensors, report)
    contract = FeatureContract(
        extractor="Detectron ResNeXt-101 FPN on Visual Genome (Unified VLP's authors)",
        weights="",
        feature_size=config.feature_size,
        class_names=tuple(f"class {number}" for number in range(config.classes)),
        selection="exactly 100 by score",
    )
    ModelFolder(out, model, architecture, tokens, contract).save(out)
    return report.lines()
