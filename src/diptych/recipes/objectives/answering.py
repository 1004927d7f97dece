"""To answer questions from a list: any model with text goes with it."""

from typing import Literal

from diptych.core import Vocabulary
from diptych.objectives import AnswerQuestion, OneForward, Schedule
from diptych.recipes.objectives.kind import Objectives


class Answering(Objectives):
    kind: Literal["answer"] = "answer"
    form: Literal["binary", "softmax"] = "binary"
    masks_a_word: bool = False  # Unified VLP's code masks a word of each question in training (vqa_mask_one)

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        answer = AnswerQuestion(vocabulary, self.masks_a_word, form=self.form)
        return Schedule(((OneForward((answer,)), 1.0),))
