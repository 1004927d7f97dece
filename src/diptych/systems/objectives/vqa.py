"""To answer questions from a list: any model with text goes with it."""

from typing import Literal

from diptych.core import Vocabulary
from diptych.objectives import AnswerQuestion, Schedule, SeenRegionClass
from diptych.systems.objectives.kind import SeenClasses, weighed
from diptych.tasks.spec import AnswerForm


class VqaObjectives(SeenClasses):
    """Fine-tuning for questions: one class an answer."""

    kind: Literal["vqa"] = "vqa"
    """Kind of objectives."""
    form: AnswerForm = "binary"
    """How answers are learnt: each by itself (binary), or against each other (softmax)."""
    masks_a_word: bool = False
    """Whether a word of each question is masked in training (Unified VLP's code, vqa_mask_one)."""

    @property
    def answer_form(self) -> AnswerForm:
        return self.form

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        answer = AnswerQuestion(vocabulary, self.masks_a_word, form=self.form)
        return weighed((answer, 1.0), (SeenRegionClass(), self.seen_classes))
