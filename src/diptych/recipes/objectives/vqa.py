"""To answer questions from a list: any model with text goes with it."""

from typing import Literal

from pydantic import NonNegativeFloat

from diptych.core import Vocabulary
from diptych.objectives import AnswerQuestion, Schedule, SeenRegionClass
from diptych.recipes.objectives.kind import Objectives, weighed
from diptych.tasks.spec import AnswerForm


class VqaObjectives(Objectives):
    """Fine-tuning for questions: one class an answer."""

    kind: Literal["vqa"] = "vqa"
    form: AnswerForm = "binary"
    masks_a_word: bool = False  # Unified VLP's code masks a word of each question in training (vqa_mask_one)
    seen_classes: NonNegativeFloat = 0.0  # weight of the regions' classes told from pixels alone (model.network)

    @property
    def answer_form(self) -> AnswerForm:
        return self.form

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        answer = AnswerQuestion(vocabulary, self.masks_a_word, form=self.form)
        return weighed((answer, 1.0), (SeenRegionClass(), self.seen_classes))
