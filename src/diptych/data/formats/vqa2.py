"""VQA v2: questions and ten answers each (visualqa.org)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.parsing import Once, Pictures, key_of_name, picture_at, read_json
from diptych.data.formats.values import JsonValue, Text

_SUBSETS = {"test-dev2015": "test2015"}  # a part of those pictures, which keep their names
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
    questions: Path | JsonValue,
    annotations: Path | JsonValue | None = None,
    pictures: Path | Pictures | None = None,
    split: str = "train",
    name: Callable[[int], str] | None = None,
) -> list[Record]:
    """One record a picture, its key the picture's name. Without `annotations` (the test set) questions have no answers.

    `name` says what the picture of a number is called; the default is COCO's way, by the file's `data_subtype`.
    """
    file = read_json(questions)
    read = file.read(_VqaQuestions)
    answered = None if annotations is None else read_json(annotations)
    answers = {} if answered is None else _answers(answered)
    once = Once("question id")
    asked: dict[int, list[Question]] = defaultdict(list)
    for at, one in enumerate(read.questions):
        number = one.question_id
        once.check(number, file.where(f"questions[{at}]"))
        if answered is not None and number not in answers:
            wanted = f"one that {answered.where()} answers"
            file.refuse(f"question {number}", wanted, f"questions[{at}].question_id")
        words, kind = answers.get(number, ((), "other"))
        asked[one.image_id].append(Question(str(number), one.question, words, kind))
    if name is None and read.data_subtype is UNSET:
        file.refuse("an object without it", "one with `data_subtype`")
    subset = _SUBSETS.get(str(read.data_subtype), read.data_subtype)
    records = []
    for number, found in asked.items():
        file_name = f"COCO_{subset}_{number:012d}.jpg" if name is None else name(number)
        picture = picture_at(pictures, file_name, file.where(f"image {number}"))
        records.append(Record(key_of_name(file_name), split, picture, questions=tuple(found)))
    return records


def _answers(file: JsonValue) -> dict[int, tuple[tuple[str, ...], str]]:
    """By question id: the answers and the answer type."""
    found: dict[int, tuple[tuple[str, ...], str]] = {}
    once = Once("question id")
    for at, note in enumerate(file.read(_VqaAnswers).annotations):
        once.check(note.question_id, file.where(f"annotations[{at}]"))
        if not note.answers:
            file.refuse("no answers", "at least one", f"annotations[{at}].answers")
        if note.answer_type not in _KINDS:
            wanted = "yes/no, number or other"
            file.refuse(f"`{note.answer_type}`", wanted, f"annotations[{at}].answer_type")
        found[note.question_id] = tuple(one.answer for one in note.answers), note.answer_type
    return found
