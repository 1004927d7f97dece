"""What a recipe can train: any kind goes with any model that provides what it needs. `OBJECTIVES` lists them."""

from diptych.recipes.objectives.answering import Answering
from diptych.recipes.objectives.kind import Objectives
from diptych.recipes.objectives.tden import TdenObjectives
from diptych.recipes.objectives.unified_vlp import UnifiedVLPObjectives
from diptych.recipes.objectives.writing import Writing

OBJECTIVES: dict[str, type[Objectives]] = {
    "unified-vlp": UnifiedVLPObjectives,
    "tden": TdenObjectives,
    "answer": Answering,
    "write": Writing,
}

__all__ = ["OBJECTIVES", "Answering", "Objectives", "TdenObjectives", "UnifiedVLPObjectives", "Writing"]
