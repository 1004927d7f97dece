"""Read GQA: questions about images of Visual Genome, with one answer each (cs.stanford.edu/people/dorarad/gqa)."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import answer_kind
from diptych.data.formats.values import Text


class _GqaQuestion(Struct, rename="camel"):
    image_id: Text
    question: Text
    answer: Text | UnsetType = UNSET


def read(wanted: Wanted, questions: Source) -> list[Record]:
    """Read {"QUESTION_ID": {"imageId", "question", "answer"}}: one record per image, whose key is the image's number.

    Questions of the test set have no answer.
    """
    by_image = ByImage[Question]()

    def take(key: str) -> None:
        value = questions.json.inner(key)
        one = value.read(_GqaQuestion)
        answers = () if one.answer is UNSET else (one.answer,)
        by_image.add(one.image_id, Question(key, one.question, answers, answer_kind(answers)), value.where())

    wanted.skips.every(questions.json.read(dict[str, Any]), take, "question")
    return by_image.records(wanted, lambda name, items, where: wanted.record(f"{name}.jpg", where, questions=items))
