"""The types that all other packages use: records, samples, batches, states and protocols. Read this package first.

The letters of tensor shapes in all signatures:

    B  batch          R  regions         T  text tokens     U  target tokens or queries
    L  positions of a joint sequence     D  width           H  heads
    F  region feature size               C  region classes  V  words of the vocabulary
    A  answers

Boxes are corners (x1, y1, x2, y2), divided by the image's width and height. So their values are from 0 to 1.
"""

from diptych.core.attention import (
    BIDIRECTIONAL,
    QUERIES_BEFORE,
    REGIONS_AFTER_TEXT,
    TARGET_AFTER_BOTH,
    TEXT_AFTER_REGIONS,
    UNIMODAL,
    Attention,
    attention_mask,
)
from diptych.core.batch import Batch, Places, collate
from diptych.core.contract import FeatureContract
from diptych.core.protocols import (
    Capability,
    ComparesSamples,
    Following,
    Losses,
    Method,
    Needs,
    Objective,
    PairObjective,
    PickingUpdate,
    StateModel,
    Task,
    Update,
    Writer,
)
from diptych.core.record import (
    MASK_CELLS,
    Choices,
    Expression,
    GeneratedCaption,
    Object,
    Question,
    Record,
    Statement,
    TaskItem,
)
from diptych.core.regions import Regions, iou
from diptych.core.sample import IGNORE, Partners, Sample
from diptych.core.states import StateRequest, States, Stream
from diptych.core.tags import names_for_tags, split_at_tags, tags
from diptych.core.vocabulary import Vocabulary

__all__ = [
    "BIDIRECTIONAL",
    "IGNORE",
    "MASK_CELLS",
    "QUERIES_BEFORE",
    "REGIONS_AFTER_TEXT",
    "TARGET_AFTER_BOTH",
    "TEXT_AFTER_REGIONS",
    "UNIMODAL",
    "Attention",
    "Batch",
    "Capability",
    "Choices",
    "ComparesSamples",
    "Expression",
    "FeatureContract",
    "Following",
    "GeneratedCaption",
    "Losses",
    "Method",
    "Needs",
    "Object",
    "Objective",
    "PairObjective",
    "Partners",
    "PickingUpdate",
    "Places",
    "Question",
    "Record",
    "Regions",
    "Sample",
    "StateModel",
    "StateRequest",
    "Statement",
    "States",
    "Stream",
    "Task",
    "TaskItem",
    "Update",
    "Vocabulary",
    "Writer",
    "attention_mask",
    "collate",
    "iou",
    "names_for_tags",
    "split_at_tags",
    "tags",
]  # fmt: skip
