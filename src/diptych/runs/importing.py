"""An official checkpoint -> a model folder."""

from __future__ import annotations

from pathlib import Path

from diptych.core import FeatureContract
from diptych.errors import RecipeError, nearest
from diptych.loading.pixels import Colours
from diptych.loading.tokens import Tokens
from diptych.models import SYSTEMS, SystemModel
from diptych.models.weights import Report, load_into
from diptych.runs.folder import Architecture, ModelFolder


def begin(model: SystemModel, system: str, source: str) -> Report:
    """Begin from weights of BERT or of another system, as `SYSTEMS` says how (`init` of a recipe)."""
    start = SYSTEMS[system].start
    if start is None:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    return start(model, source)


def begin_network(model: SystemModel, system: str, source: str, colours: Colours) -> Report:
    """The part that looks at pixels, from a detector folder or a file of weights; the rest stays as it is."""
    start = SYSTEMS[system].start_network
    if start is None or not model.config.reads_pixels:
        raise RecipeError("network_init is what a network begins as, and none looks at pixels; set model.network too")
    return start(model, source, colours)


def import_checkpoint(system: str, file: Path, out: Path, vocabulary: Path, lowercase: bool | None = None) -> list[str]:
    """Write the model folder `out`; hands back one line for each key renamed, left or missing.

    `lowercase`: None as the released models of the system have it.
    """
    importers = {name: entry.importer for name, entry in SYSTEMS.items() if entry.importer is not None}
    if system not in importers:
        raise RecipeError(f"no importer for {system!r}; {nearest(system, importers)}")
    if out.exists():
        raise RecipeError(f"{out} is there already; give another folder, or delete it")
    importer = importers[system]
    lowercase = importer.lowercase if lowercase is None else lowercase
    tokens = Tokens.from_vocabulary(vocabulary, lowercase)
    config, heads, tensors, report = importer.read(file, vocabulary, lowercase=lowercase)
    architecture = Architecture(system=system, config=config, heads=tuple(sorted(heads)))
    model = architecture.build()
    load_into(model, tensors, report)
    contract = FeatureContract(
        extractor=importer.extractor,
        weights="",
        feature_size=config.feature_size,
        class_names=tuple(f"class {number}" for number in range(config.classes)),
        selection=importer.selection,
    )
    ModelFolder(out, model, architecture, tokens, contract).save(out)
    return report.lines()
