"""The entry of a system in `SYSTEMS`: its classes, importer, objectives, presets, and the tables of its paper.

`SYSTEMS` is the only list of systems. `diptych.systems` fills it, and other packages can add systems.
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

# Names of the detectors whose features the released models use; docs/fidelity.md has the sources.
BOTTOM_UP = "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)"
BOTTOM_UP_CAFFE = "bottom-up attention (caffe)"


class NamedPreset(Protocol):
    """A preset: calling it returns a recipe, or a recipe of several stages (see `diptych.systems.preset`)."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    def __call__(self) -> Any: ...


@dataclass(frozen=True)
class Importer:
    """How to import the weights that the authors of a system published."""

    read: Callable[..., Imported]  # called with (file of weights, vocab.txt, lowercase=...)
    extractor: str  # detector whose features the released models use
    selection: str  # how the regions were selected, for users
    lowercase: bool  # True: the released models have a lower-case vocabulary
    detector: str  # prefix of the extractor's name, if our detector computes the same features
    key_prefixes: tuple[str, ...] = ()  # prefixes of keys that only this system's checkpoints have


@dataclass(frozen=True)
class System:
    """Everything that training, scoring and serving need to know about a system."""

    name: str  # as in recipes such as `NAME/small/pretrain`
    title: str  # name as spelt in the paper
    paper: str  # arXiv number of the paper
    config: type[ModelConfig]
    resolved: type[ResolvedConfig]
    model: type[SystemModel]
    selection: Selection  # rule that selects regions, as in the paper
    objectives: type[Objectives]  # settings of pre-training
    recipes: tuple[NamedPreset, ...]  # NAME/small/TASK is derived from NAME/small/pretrain if it is missing
    selections: Mapping[str, Selection] = field(default_factory=dict)  # {name: further rule that selects regions}
    tables: Path | None = None  # path of paper.toml, which has the tables of the paper
    # Initialises a model from weights of BERT or another system; called with (model, file or folder or hub id).
    start: Callable[[Any, str], ImportReport] | None = None
    # Initialises the part of a model that reads pixels; called with (model, file or folder, order of colours).
    start_network: Callable[[Any, str, Colours], ImportReport] | None = None
    importer: Importer | None = None  # None: the authors published no weights
    declines: Mapping[str, str] = field(default_factory=dict)  # {task that the system cannot learn: reason}

    @property
    def rules(self) -> dict[str, Selection]:
        """Return all rules of the system that select regions, by name."""
        return {self.name: self.selection, **self.selections}


SYSTEMS: dict[str, System] = {}
# Kinds of objectives that a recipe can use, by `kind`. A model can use any kind whose needs it provides. Systems add
# their own.
OBJECTIVES: dict[str, type[Objectives]] = {
    kind.model_fields["kind"].default: kind for spec in TASKS.values() for kind in spec.training.objectives
}
