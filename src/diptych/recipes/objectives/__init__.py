"""What a recipe can train: any kind goes with any model that provides what it needs. `OBJECTIVES` lists them."""

from diptych.recipes.objectives.answering import Answering
from diptych.recipes.objectives.deciding import Choosing, Grounding, Judging
from diptych.recipes.objectives.image_bert import ImageBertObjectives
from diptych.recipes.objectives.kind import Objectives
from diptych.recipes.objectives.retrieval import Retrieving
from diptych.recipes.objectives.self_critical import SelfCriticalObjectives
from diptych.recipes.objectives.tden import TdenObjectives
from diptych.recipes.objectives.unified_vlp import UnifiedVLPObjectives
from diptych.recipes.objectives.vl_bert import VLBertObjectives
from diptych.recipes.objectives.writing import Writing
from diptych.recipes.objectives.xgpt import XgptObjectives

OBJECTIVES: dict[str, type[Objectives]] = {
    "unified-vlp": UnifiedVLPObjectives,
    "vl-bert": VLBertObjectives,
    "image-bert": ImageBertObjectives,
    "tden": TdenObjectives,
    "xgpt": XgptObjectives,
    "answer": Answering,
    "choose": Choosing,
    "ground": Grounding,
    "judge": Judging,
    "retrieve": Retrieving,
    "write": Writing,
    "self-critical": SelfCriticalObjectives,
}

__all__ = [
    "OBJECTIVES",
    "Answering",
    "Choosing",
    "Grounding",
    "ImageBertObjectives",
    "Judging",
    "Objectives",
    "Retrieving",
    "SelfCriticalObjectives",
    "TdenObjectives",
    "UnifiedVLPObjectives",
    "VLBertObjectives",
    "Writing",
    "XgptObjectives",
]
