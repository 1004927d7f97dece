"""What a recipe can train: any kind goes with any model that provides what it needs. `OBJECTIVES` lists them."""

from diptych.recipes.objectives.caption import CaptionObjectives
from diptych.recipes.objectives.decisions import NlvrObjectives, ReferringObjectives, VcrObjectives
from diptych.recipes.objectives.image_bert import ImageBertObjectives
from diptych.recipes.objectives.kind import Objectives
from diptych.recipes.objectives.retrieval import RetrievalObjectives
from diptych.recipes.objectives.self_critical import SelfCriticalObjectives
from diptych.recipes.objectives.tden import TdenObjectives
from diptych.recipes.objectives.unified_vlp import UnifiedVLPObjectives
from diptych.recipes.objectives.vl_bert import VLBertObjectives
from diptych.recipes.objectives.vqa import VqaObjectives
from diptych.recipes.objectives.xgpt import XgptObjectives

OBJECTIVES: dict[str, type[Objectives]] = {
    "unified-vlp": UnifiedVLPObjectives,
    "vl-bert": VLBertObjectives,
    "image-bert": ImageBertObjectives,
    "tden": TdenObjectives,
    "xgpt": XgptObjectives,
    "vqa": VqaObjectives,
    "vcr": VcrObjectives,
    "referring": ReferringObjectives,
    "nlvr": NlvrObjectives,
    "retrieval": RetrievalObjectives,
    "caption": CaptionObjectives,
    "self-critical": SelfCriticalObjectives,
}

__all__ = [
    "OBJECTIVES",
    "CaptionObjectives",
    "ImageBertObjectives",
    "NlvrObjectives",
    "Objectives",
    "ReferringObjectives",
    "RetrievalObjectives",
    "SelfCriticalObjectives",
    "TdenObjectives",
    "UnifiedVLPObjectives",
    "VLBertObjectives",
    "VcrObjectives",
    "VqaObjectives",
    "XgptObjectives",
]
