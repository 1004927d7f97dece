"""The interface for packages that extend Diptych. They import only this module and `diptych.testing`.

A package adds systems, tasks, formats, metrics, detectors, objectives and heads (docs/from-outside.md). Each name here
is documented where it is defined; `help(diptych.plugin.Batch)` lists the fields of a batch with their shapes.

Stability: names in `__all__` keep their meaning and arguments within 0.x, and within each later major version. Any
version may add names, and arguments with defaults. A name is removed only in a major version, after a minor version
that warns about the removal and names the replacement. Other modules of Diptych may change in any version.
"""

from diptych.core import (
    BIDIRECTIONAL,
    IGNORE,
    TEXT_AFTER_REGIONS,
    UNIMODAL,
    Attention,
    Batch,
    Capability,
    ComparesSamples,
    FeatureContract,
    Following,
    Method,
    Needs,
    Objective,
    PairObjective,
    Partners,
    Question,
    Record,
    Regions,
    Sample,
    Statement,
    StateModel,
    StateRequest,
    States,
    Stream,
    Task,
    TaskItem,
    Update,
    Vocabulary,
    Writer,
    attention_mask,
    collate,
    iou,
)
from diptych.core.entailment import LABELS
from diptych.core.randomness import pick, uniform
from diptych.core.shares import Count, Layers, PartialShare, Share, Size
from diptych.data.formats.format import ByImage, Format, Source, Wanted
from diptych.data.formats.parsing import key_of_name, picture_at, read_items, read_json, read_text
from diptych.data.formats.table import FORMATS
from diptych.data.formats.values import JsonValue
from diptych.data.store.tokens import Tokens
from diptych.metrics.auroc import auroc
from diptych.metrics.bootstrap import Interval, bootstrap_interval, paired_interval, resampled_interval, rows_by_picture
from diptych.models import HEADS, HeadSizes, ModelConfig, ResolvedConfig, SystemModel, as_bert, make_heads
from diptych.models.dropout import Dropout
from diptych.models.embeddings import TextEmbedding
from diptych.models.heads import PooledHead, answer_slot_state
from diptych.models.momentum import Momentum
from diptych.models.rows import requested_mask
from diptych.models.transformer import LayerSizes, Transformer
from diptych.models.visual import refuse_more_regions, region_features
from diptych.models.weights import ImportReport
from diptych.objectives import (
    AnswerQuestion,
    ClassifyStatement,
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    MaskedRegionFeature,
    OneForward,
    Schedule,
    Similarity,
    together,
)
from diptych.objectives.per_sample import PerSample
from diptych.objectives.ranks import of_all_ranks
from diptych.objectives.settings import Objectives, weighed
from diptych.runtime.configs import derive
from diptych.runtime.devices import to_device
from diptych.runtime.errors import CheckpointError, DataError, DiptychError, RecipeError, ServingError
from diptych.runtime.plugins import load_plugins
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems import (
    OBJECTIVES,
    RECIPES,
    SYSTEMS,
    Importer,
    Preset,
    Recipe,
    System,
    add_system,
    add_task,
    find_recipe,
)
from diptych.systems.bert import head_names, heads_for, in_full, renamed, start_from_bert, vocabulary_for
from diptych.systems.preset import preset
from diptych.systems.recipe import DataConfig
from diptych.systems.shared import ADAMW, TRAINING, muon
from diptych.systems.system import BOTTOM_UP, BOTTOM_UP_CAFFE
from diptych.tasks import TASKS, TaskInterface, TaskSpec
from diptych.tasks.answers import Answers
from diptych.tasks.classifier import ACCURACY, AUROC, LabelObjectives, Metric, classifier
from diptych.tasks.entailment import EntailmentObjectives
from diptych.tasks.interface import Form, InterfaceWords, PageView, ShareTable, TaskAnswer, TaskModel, TaskRequest, Text
from diptych.tasks.nlvr import NlvrObjectives
from diptych.tasks.retrieval import RetrievalObjectives
from diptych.tasks.run import encode, finite
from diptych.tasks.scores import Baselines, Score, Scores, score_of, share_scores
from diptych.tasks.spec import Heads, Small, TaskOptions, TaskScoring, TaskTraining, TrainingRecords
from diptych.tasks.verdicts import Judged, Verdicts
from diptych.tasks.vqa import VqaObjectives
from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.vision.detectors.detector import Detector, NetworkDetector
from diptych.vision.detectors.load import DETECTORS, DetectorKind
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import EXACTLY_100, Selection
from diptych.vision.detectors.weights import read_detector, restored, write_detector

__all__ = [
    "ACCURACY", "ADAMW", "AUROC", "BIDIRECTIONAL", "BOTTOM_UP", "BOTTOM_UP_CAFFE", "DETECTORS", "EXACTLY_100",
    "FORMATS", "HEADS", "IGNORE", "LABELS", "OBJECTIVES", "RECIPES", "SYSTEMS", "TASKS", "TEXT_AFTER_REGIONS",
    "TRAINING", "UNIMODAL", "AnswerQuestion", "Answers", "Attention", "Baselines", "Batch", "ByImage", "Capability",
    "CheckpointError", "ClassifyStatement", "ComparesSamples", "Count", "DataConfig", "DataError", "Detector",
    "DetectorKind", "DetectorRequest", "DiptychError", "Dropout", "EntailmentObjectives", "FeatureContract",
    "Following", "Form", "Format", "HeadSizes", "Heads", "ImageTextMatching", "ImportReport", "Importer",
    "InterfaceWords", "Interval", "JsonValue", "Judged", "LabelObjectives", "LayerSizes", "Layers", "MaskedLanguage",
    "MaskedRegionClass", "MaskedRegionFeature", "Method", "Metric", "ModelConfig", "Momentum", "Needs",
    "NetworkDetector", "NlvrObjectives", "Objective", "Objectives", "OneForward", "OptimizerConfig", "PageView",
    "PairObjective", "PartialShare", "Partners", "PerSample", "PooledHead", "Preset", "Question", "Recipe",
    "RecipeError", "Record", "Regions", "ResolvedConfig", "RetrievalObjectives", "Sample", "Schedule", "Score",
    "Scores", "Selection", "ServingError", "Share", "ShareTable", "Similarity", "Size", "Small", "Source",
    "StateModel", "StateRequest", "Statement", "States", "Stream", "System", "SystemModel", "Task", "TaskAnswer",
    "TaskInterface", "TaskItem", "TaskModel", "TaskOptions", "TaskRequest", "TaskScoring", "TaskSpec", "TaskTraining",
    "Tensors", "Text", "TextEmbedding", "Tokens", "TrainingConfig", "TrainingRecords", "Transformer", "Update",
    "Verdicts", "Vocabulary", "VqaObjectives", "Wanted", "Writer", "add_system", "add_task", "answer_slot_state",
    "as_bert", "attention_mask", "auroc", "bootstrap_interval", "classifier", "collate", "derive", "encode",
    "find_recipe", "finite", "head_names", "heads_for", "in_full", "iou", "key_of_name", "load_plugins", "make_heads",
    "muon", "of_all_ranks", "paired_interval", "pick", "picture_at", "preset", "read_detector", "read_items",
    "read_json", "read_text", "read_weights", "refuse_more_regions", "region_features", "renamed", "requested_mask",
    "resampled_interval", "restored", "rows_by_picture", "score_of", "share_scores", "start_from_bert", "to_device",
    "together", "uniform", "vocabulary_for", "weighed", "write_detector",
]  # fmt: skip
