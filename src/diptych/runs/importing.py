"""An official checkpoint -> a model folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.core import FeatureContract
from diptych.errors import RecipeError, nearest
from diptych.loading.pixels import Colours
from diptych.loading.tokens import Tokens
from diptych.models import ResolvedConfig, SystemModel
from diptych.models.tden.checkpoint import import_tden, start_tden
from diptych.models.unified_vlp.checkpoint import import_unified_vlp, start_from
from diptych.models.vl_bert.checkpoint import import_vl_bert, start_vl_bert
from diptych.models.vl_bert.model import VLBert
from diptych.models.vl_bert.network import begin_from_resnet, of_torchvision
from diptych.models.weights import Report, Tensors, load_into, read_weights
from diptych.runs.folder import Architecture, ModelFolder
from diptych.vision.weights import read_detector
from diptych.vision.weights import read_weights as read_detector_weights

Imported = tuple[ResolvedConfig, tuple[str, ...], Tensors, Report]


@dataclass(frozen=True)
class Importer:
    read: Callable[..., Imported]  # (file, vocabulary, lowercase=...)
    extractor: str  # what made the features of the released models
    selection: str
    lowercase: bool  # whether the vocabulary of the released models knows lower case alone


IMPORTERS: dict[str, Importer] = {
    "unified-vlp": Importer(
        import_unified_vlp,
        "Detectron ResNeXt-101 FPN on Visual Genome (Unified VLP's authors)",
        "exactly 100 by score",
        False,
    ),
    "tden": Importer(
        import_tden,
        "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)",
        "the best 50 by score",
        True,
    ),
    "vl-bert": Importer(
        import_vl_bert,
        "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)",
        "10 to 100 by score over 0.5",
        True,
    ),
}
# How a system begins from the weights of others (`init` of a recipe).
STARTS: dict[str, Callable[[Any, str], Report]] = {
    "image-bert": start_from,
    "tden": start_tden,
    "unified-vlp": start_from,
    "vl-bert": start_vl_bert,
}


def begin(model: SystemModel, system: str, source: str) -> Report:
    if system not in STARTS:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out init")
    return STARTS[system](model, source)


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
    if system not in IMPORTERS:
        raise RecipeError(f"no importer for {system!r}; {nearest(system, IMPORTERS)}")
    if out.exists():
        raise RecipeError(f"{out} is there already; give another folder, or delete it")
    importer = IMPORTERS[system]
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
