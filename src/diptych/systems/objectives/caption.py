"""To write captions with a decoder: any model with a target goes with it."""

from typing import Literal

from diptych.core import Vocabulary
from diptych.core.shares import PartialShare
from diptych.objectives import GenerateText, Schedule, together
from diptych.systems.objectives.kind import Objectives


class CaptionObjectives(Objectives):
    """Fine-tuning of an encoder-decoder for captions: the next word, by cross-entropy."""

    kind: Literal["caption"] = "caption"
    """Kind of objectives."""
    label_smoothing: PartialShare = 0.0
    """Label smoothing of the words."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(GenerateText(vocabulary, reads="nothing", label_smoothing=self.label_smoothing))
