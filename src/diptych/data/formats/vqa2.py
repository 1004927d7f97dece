"""Read VQA v2: questions with ten answers each (visualqa.org)."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from diptych.core import Question, Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once, Skips, image_id_of
from diptych.data.formats.values import JsonValue, Text, Words

_SUBSETS = {"test-dev2015": "test2015"}  # the questions of test-dev2015 are about images of test2015
_KINDS = ("yes/no", "number", "other")


class _VqaQuestion(Struct):
    question_id: int
    image_id: int
    question: Text


class _VqaSubset(Struct):
    data_subtype: Text


class _Answer(Struct):
    answer: Words


class _Answered(Struct):
    question_id: int
    answers: list[Any]
    image_id: int | None = None
    answer_type: Text = "other"  # absent in some exported files


def read(
    wanted: Wanted, questions: Source, annotations: Source | None = None, name: Callable[[int], str] | None = None
) -> list[Record]:
    """Read one record per image. Without `annotations` (as in the test set), questions have no answers.

    `name` returns the file name for an image's number. The default is COCO's name, with the file's `data_subtype`.
    """
    file = questions.json
    (listed,) = file.lists("questions")
    answers = {} if annotations is None else _answers(annotations.json, wanted.skips)
    once, by_image = Once("question id"), ByImage[Question]()

    def take(one: _VqaQuestion, value: JsonValue) -> None:
        number, where = one.question_id, value.where()
        with once.of(number, where):
            if annotations is not None and number not in answers:
                missing = f"one that {annotations.json.where()} answers"
                value.refuse(f"question {number}", missing, "question_id")
            words, kind, owner = answers.get(number, ((), "other", None))
            if owner not in (None, one.image_id):
                value.refuse(f"the image {one.image_id}", f"{owner}, as in the question's annotation", "image_id")
            by_image.add(one.image_id, Question(str(number), one.question, words, kind), where)

    wanted.skips.each(listed, _VqaQuestion, take)
    if name is None:
        subset = file.read(_VqaSubset).data_subtype
        subset = _SUBSETS.get(subset, subset)
    named = name or (lambda number: f"COCO_{subset}_{number:012d}.jpg")

    def record(number: int, items: tuple[Question, ...], where: str) -> Record:
        return wanted.record(named(number), where, questions=items, image_id=image_id_of(named(number), number))

    return by_image.records(wanted, record)


def _answers(file: JsonValue, skips: Skips) -> dict[int, tuple[tuple[str, ...], str, int | None]]:
    """Return question id -> (answers, answer type, image id). Empty answers are counted in `skips` and left out."""
    answers: dict[int, tuple[tuple[str, ...], str, int | None]] = {}
    once = Once("question id")

    def take(note: _Answered, value: JsonValue) -> None:
        with once.of(note.question_id, value.where()):
            if note.answer_type not in _KINDS:
                value.refuse(f"`{note.answer_type}`", "yes/no, number or other", "answer_type")
            texts = skips.worded(value.inner("answers"), _Answer, lambda one: one.answer, "empty answers")
            if not texts:
                value.refuse("no answers", "at least one", "answers")
            answers[note.question_id] = texts, note.answer_type, note.image_id

    skips.each(file.lists("annotations")[0], _Answered, take)
    return answers
