"""What a recipe can train: any kind goes with any model that provides what it needs. `OBJECTIVES` lists them."""

from diptych.recipes.objectives.answering import Answering
from diptych.recipes.objectives.kind import Objectives
from diptych.recipes.objectives.unified_vlp import UnifiedVLPObjectives

OBJECTIVES: dict[str, type[Objectives]] = {
    "unified-vlp": UnifiedVLPObjectives,
    "answer": Answering,
}

__all__ = ["OBJECTIVES", "Answering", "Objectives", "UnifiedVLPObjectives"]
