"""One entry a system: the classes, importers, objectives, presets and tables that the engine knows it by.

`SYSTEMS` is the only list of systems; `diptych.systems` fills it, and packages of others add theirs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from diptych.data.store.pixels import Colours
from diptych.models.system import Imported, ModelConfig, ResolvedConfig, SystemModel
from diptych.models.weights import ImportReport
from diptych.objectives.settings import Objectives
from diptych.tasks import TASKS
from diptych.vision.detectors.selection import Selection

# Names of the features that released models were trained on; docs/fidelity.md has the sources of the selections.
BOTTOM_UP = "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)"
BOTTOM_UP_CAFFE = "bottom-up attention (caffe)"


class NamedPreset(Protocol):
    """A recipe, or the stages of several, made when it is called (`diptych.systems.preset`)."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    def __call__(self) -> Any: ...


@dataclass(frozen=True)
class Importer:
    """How the weights that a system's authors published are read."""

    read: Callable[..., Imported]  # (file of weights, vocab.txt, lowercase=...)
    extractor: str  # what made the region features of the released models
    selection: str  # which regions they read
    lowercase: bool  # True if the vocabulary of the released models is lower case
    detector: str  # how the extractor name of our detector with the same features begins
    marks: tuple[str, ...] = ()  # how keys begin that its checkpoints alone have


@dataclass(frozen=True)
class System:
    """Everything the engine knows of a system."""

    name: str  # in recipes: `NAME/small/pretrain`
    title: str  # as the paper writes it
    paper: str  # its arXiv number
    config: type[ModelConfig]
    resolved: type[ResolvedConfig]
    model: type[SystemModel]
    selection: Selection  # of regions, as in the paper
    objectives: type[Objectives]  # settings of its pre-training
    recipes: tuple[NamedPreset, ...]  # its own; NAME/small/pretrain is what NAME/small/TASK is made of
    selections: Mapping[str, Selection] = field(default_factory=dict)  # further ones, by the names of options
    tables: Path | None = None  # paper.toml: the tables of its paper, row by row
    start: Callable[[Any, str], ImportReport] | None = (
        None  # (model, file, folder or hub id): from other systems' weights
    )
    start_network: Callable[[Any, str, Colours], ImportReport] | None = (
        None  # the part that reads pixels, if it has one
    )
    importer: Importer | None = None  # None: its authors published no weights

    @property
    def rules(self) -> dict[str, Selection]:
        """By which regions are selected, by name (`--select`)."""
        return {self.name: self.selection, **self.selections}


SYSTEMS: dict[str, System] = {}
# What a recipe can train, by `kind`: any goes with any model that provides what it needs. Systems add theirs.
OBJECTIVES: dict[str, type[Objectives]] = {
    kind.model_fields["kind"].default: kind for spec in TASKS.values() for kind in spec.training.objectives
}
