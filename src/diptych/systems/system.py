"""A system's entry: its classes, importer, objectives, presets and the tables of its paper.

`SYSTEMS` is the only list of systems. `diptych.systems` fills it, and other packages add their own.
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

# The detectors whose features the released models were trained on; docs/fidelity.md has the sources of the selections.
BOTTOM_UP = "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)"
BOTTOM_UP_CAFFE = "bottom-up attention (caffe)"


class NamedPreset(Protocol):
    """A recipe, or several stages, made by a call (`diptych.systems.preset`)."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    def __call__(self) -> Any: ...


@dataclass(frozen=True)
class Importer:
    """Reads the weights that a system's authors published."""

    read: Callable[..., Imported]  # (file of weights, vocab.txt, lowercase=...)
    extractor: str  # the detector whose features the released models read
    selection: str  # the regions that they read
    lowercase: bool  # True if the vocabulary of the released models is lower case
    detector: str  # beginning of the extractor name of our detector with the same features
    key_prefixes: tuple[str, ...] = ()  # beginnings of keys that only this system's checkpoints have


@dataclass(frozen=True)
class System:
    """Everything that training, scoring and serving need to know about a system."""

    name: str  # in recipes: `NAME/small/pretrain`
    title: str  # spelt as in the paper
    paper: str  # its arXiv number
    config: type[ModelConfig]
    resolved: type[ResolvedConfig]
    model: type[SystemModel]
    selection: Selection  # of regions, as in the paper
    objectives: type[Objectives]  # settings of its pre-training
    recipes: tuple[NamedPreset, ...]  # the system's recipes; NAME/small/TASK is derived from NAME/small/pretrain
    selections: Mapping[str, Selection] = field(default_factory=dict)  # further values of `--select`
    tables: Path | None = None  # paper.toml: the tables of its paper, row by row
    # (model, file or folder or hub id): initialise a model from weights of BERT or of another system
    start: Callable[[Any, str], ImportReport] | None = None
    # (model, file or folder, order of colours): initialise the part that reads pixels, if the model has one
    start_network: Callable[[Any, str, Colours], ImportReport] | None = None
    importer: Importer | None = None  # None: its authors published no weights
    declines: Mapping[str, str] = field(default_factory=dict)  # tasks that it cannot learn, each with the reason

    @property
    def rules(self) -> dict[str, Selection]:
        """Selections of regions by name (`--select`)."""
        return {self.name: self.selection, **self.selections}


SYSTEMS: dict[str, System] = {}
# Objectives that a recipe can name, by `kind`. Any kind fits any model that provides what it needs. Systems add theirs.
OBJECTIVES: dict[str, type[Objectives]] = {
    kind.model_fields["kind"].default: kind for spec in TASKS.values() for kind in spec.training.objectives
}
