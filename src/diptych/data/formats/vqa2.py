"""VQA v2: questions with ten answers each (visualqa.org)."""

from collections.abc import Callable

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once
from diptych.data.formats.values import JsonValue, Text

_SUBSETS = {"test-dev2015": "test2015"}  # a part of those images, which keep their names
_KINDS = ("yes/no", "number", "other")


class _VqaQuestion(Struct):
    question_id: int
    image_id: int
    question: Text


class _VqaQuestions(Struct):
    questions: list[_VqaQuestion]
    data_subtype: Text | UnsetType = UNSET


class _Answer(Struct):
    answer: Text


class _Answered(Struct):
    question_id: int
    answers: list[_Answer]
    answer_type: Text = "other"  # some exports leave it out


class _VqaAnswers(Struct):
    annotations: list[_Answered]


def read(
    wanted: Wanted, questions: Source, annotations: Source | None = None, name: Callable[[int], str] | None = None
) -> list[Record]:
    """Read one record an image. Without `annotations`, as of the test set, questions have no answers.

    `name` returns the file name of an image's number; the default is COCO's name, made from `data_subtype`.
    """
    file = questions.json
    read = file.read(_VqaQuestions)
    answers = {} if annotations is None else _answers(annotations.json)
    once, by_image = Once("question id"), ByImage[Question]()
    for at, one in enumerate(read.questions):
        number, where = one.question_id, file.where(f"questions[{at}]")
        once.check(number, where)
        if annotations is not None and number not in answers:
            missing = f"one that {annotations.json.where()} answers"
            file.refuse(f"question {number}", missing, f"questions[{at}].question_id")
        words, kind = answers.get(number, ((), "other"))
        by_image.add(one.image_id, Question(str(number), one.question, words, kind), where)
    if name is None and read.data_subtype is UNSET:
        file.refuse("an object without it", "one with `data_subtype`")
    subset = _SUBSETS.get(str(read.data_subtype), read.data_subtype)
    named = name or (lambda number: f"COCO_{subset}_{number:012d}.jpg")
    return [wanted.record(named(number), where, questions=items) for number, items, where in by_image]


def _answers(file: JsonValue) -> dict[int, tuple[tuple[str, ...], str]]:
    """Return the answers and the answer type by question id."""
    answers: dict[int, tuple[tuple[str, ...], str]] = {}
    once = Once("question id")
    for at, note in enumerate(file.read(_VqaAnswers).annotations):
        once.check(note.question_id, file.where(f"annotations[{at}]"))
        if not note.answers:
            file.refuse("no answers", "at least one", f"annotations[{at}].answers")
        if note.answer_type not in _KINDS:
            file.refuse(f"`{note.answer_type}`", "yes/no, number or other", f"annotations[{at}].answer_type")
        answers[note.question_id] = tuple(one.answer for one in note.answers), note.answer_type
    return answers
