"""What a recipe can train: any kind goes with any model that provides what it needs. `OBJECTIVES` lists them."""

from diptych.systems.objectives.caption import CaptionObjectives
from diptych.systems.objectives.decisions import NlvrObjectives, ReferringObjectives, VcrObjectives
from diptych.systems.objectives.kind import Objectives
from diptych.systems.objectives.retrieval import RetrievalObjectives
from diptych.systems.objectives.self_critical import SelfCriticalObjectives
from diptych.systems.objectives.vqa import VqaObjectives

OBJECTIVES: dict[str, type[Objectives]] = {  # and those of each system, by its name
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
    "NlvrObjectives",
    "Objectives",
    "ReferringObjectives",
    "RetrievalObjectives",
    "SelfCriticalObjectives",
    "VcrObjectives",
    "VqaObjectives",
]
