"""The interface for packages that extend Diptych. They import only this module and `diptych.testing`.

A package adds systems, tasks, formats, metrics, detectors, objectives and heads (docs/from-outside.md). Each name here
is documented where it is defined; `help(diptych.plugin.Batch)` lists the fields of a batch with their shapes.

No version of Diptych is released yet, so any of these names may still change. The first release will state which stay.
"""

from diptych.core import (
    BIDIRECTIONAL,
    Batch,
    Capability,
    Objective,
    Record,
    Sample,
    Statement,
    StateModel,
    StateRequest,
    States,
    TaskItem,
    Vocabulary,
    attention_mask,
)
from diptych.data.formats.format import Format
from diptych.data.formats.table import FORMATS
from diptych.data.store.tokens import Tokens
from diptych.models import HEADS, HeadSizes, ModelConfig, ResolvedConfig, SystemModel, as_bert, make_heads
from diptych.models.dropout import Dropout
from diptych.models.embeddings import TextEmbedding
from diptych.models.rows import requested_mask
from diptych.models.transformer import LayerSizes, Transformer
from diptych.models.visual import region_features
from diptych.models.weights import ImportReport
from diptych.objectives import (
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    MaskedRegionFeature,
    OneForward,
    Schedule,
)
from diptych.objectives.settings import Objectives, weighed
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.plugins import load_plugins
from diptych.runtime.weight_files import read_weights
from diptych.systems import OBJECTIVES, RECIPES, SYSTEMS, Importer, System, add_system, add_task, bert
from diptych.systems.preset import preset
from diptych.tasks import TASKS, TaskInterface, TaskSpec
from diptych.tasks.classifier import ACCURACY, Metric, classifier
from diptych.tasks.interface import Form, InterfaceWords, TaskAnswer, TaskModel, TaskRequest, Text
from diptych.tasks.scores import Baselines, Scores, share_scores
from diptych.tasks.spec import Small, TaskScoring, TaskTraining
from diptych.vision.detectors.selection import Selection

__all__ = [  # noqa: RUF022 (in sections)
    # Tables, and what adds to them
    "FORMATS", "HEADS", "OBJECTIVES", "RECIPES", "SYSTEMS", "TASKS",
    "add_system", "add_task", "load_plugins",
    # Data
    "BIDIRECTIONAL", "Batch", "Capability", "DataError", "Format", "Record", "Sample", "Statement", "States",
    "TaskItem", "Tokens", "Vocabulary", "attention_mask",
    # Models
    "Dropout", "HeadSizes", "LayerSizes", "ModelConfig", "ResolvedConfig", "Selection", "System", "SystemModel",
    "TextEmbedding", "Transformer", "as_bert", "make_heads", "region_features", "requested_mask",
    # Objectives and recipes
    "ImageTextMatching", "MaskedLanguage", "MaskedRegionClass", "MaskedRegionFeature", "Objective", "Objectives",
    "OneForward", "Schedule", "StateModel", "StateRequest", "preset", "weighed",
    # Tasks, their scores and their interface
    "ACCURACY", "Baselines", "Form", "InterfaceWords", "Metric", "Scores", "Small", "TaskAnswer", "TaskInterface",
    "TaskModel", "TaskRequest", "TaskScoring", "TaskSpec", "TaskTraining", "Text", "classifier", "share_scores",
    # Checkpoints of the authors
    "CheckpointError", "ImportReport", "Importer", "bert", "read_weights",
]  # fmt: skip
