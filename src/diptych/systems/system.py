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
    selection: str  # how the regions were selected, for users
    lowercase: bool  # True: the vocabulary of the released models is in lower case
    # The detector whose features the released models use, and a prefix of the names of Diptych's that compute the same.
    extractor: str = "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)"
    detector: str = "bottom-up attention (caffe)"
    key_prefixes: tuple[str, ...] = ()  # prefixes of tensor names that only this system's checkpoints have


@dataclass(frozen=True)
class System:
    """Everything that training, scoring and serving need to know about a system."""

    name: str  # name of the system, as in recipes such as `NAME/small/pretrain`
    title: str  # name of the system as its paper spells it
    paper: str  # arXiv number of the system's paper
    config: type[ModelConfig]
    resolved: type[ResolvedConfig]
    model: type[SystemModel]
    selection: Selection  # the paper's rule for the selection of regions
    objectives: type[Objectives]  # the system's objectives of pre-training
    recipes: tuple[NamedPreset, ...]  # NAME/small/TASK is derived from NAME/small/pretrain if it is missing
    selections: Mapping[str, Selection] = field(default_factory=dict)  # {name: further rule that selects regions}
    tables: Path | None = None  # path of paper.toml, which has the tables of the paper
    # Initialises a model from weights of BERT or of another system. Arguments: model, file or folder or hub id.
    start: Callable[[Any, str], ImportReport] | None = None
    depth: str = "layers"  # the model's setting that the number of BERT's layers gives
    # Initialises the layers that a detector has too. Arguments: model, file or folder of it, order of colours.
    start_network: Callable[[Any, str, Colours], ImportReport] | None = None
    importer: Importer | None = None  # imports the checkpoints of the authors; None: they published none
    declines: Mapping[str, str] = field(default_factory=dict)  # {task that the system cannot learn: reason}

    @property
    def rules(self) -> dict[str, Selection]:
        """Return all rules of the system that select regions, by name."""
        return {self.name: self.selection, **self.selections}


SYSTEMS: dict[str, System] = {}
# {`kind`: class of objectives that a recipe can use}. A model can use all objectives whose needs it meets. Systems add
# further kinds.
OBJECTIVES: dict[str, type[Objectives]] = {
    kind.model_fields["kind"].default: kind for spec in TASKS.values() for kind in spec.training.objectives
}
