"""An official checkpoint -> a model folder."""

from __future__ import annotations

from pathlib import Path

from diptych.core import FeatureContract
from diptych.errors import RecipeError, nearest
from diptych.loading.pixels import Colours
from diptych.loading.tokens import Tokens
from diptych.models import SYSTEMS, SystemModel, VLBert
from diptych.models.vl_bert.network import begin_from_resnet, of_torchvision
from diptych.models.weights import Report, load_into, read_weights
from diptych.runs.folder import Architecture, ModelFolder
from diptych.vision.weights import read_detector
from diptych.vision.weights import read_weights as read_detector_weights


def begin(model: SystemModel, system: str, source: str) -> Report:
    """Begin from weights of BERT or of another system, as `SYSTEMS` says how (`init` of a recipe)."""
    start = SYSTEMS[system].start
    if start is None:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    return start(model, source)


def begin_network(model: SystemModel, source: str, colours: Colours) -> Report:
    """The part that looks at pixels, from a detector folder or a file of weights; the rest stays as it is."""
    network = model.regions.network if isinstance(model, VLBert) else None
    if network is None or not isinstance(model, VLBert):
        raise RecipeError("network_init is what a network begins as, and none looks at pixels; set model.network too")
    path = Path(source)
    tensors = read_detector_weights(path, read_detector(path)) if path.is_dir() else read_weights(path)
    if of_torchvision(tensors):
        wanted = {"data.pixels_colours=rgb": colours == "rgb"}
        if network.bottlenecks:
            wanted["model.network_stride=3x3"] = model.config.network_stride == "3x3"
        if other := [setting for setting, met in wanted.items() if not met]:
            raise RecipeError(f"{source} holds weights of torchvision's kind; they want --set {' --set '.join(other)}")
    return begin_from_resnet(network, tensors, source)


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
