"""Read questions with answers: VQA v2 (visualqa.org), GQA (cs.stanford.edu/people/dorarad/gqa), VizWiz-VQA, A-OKVQA."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once, Skips, answer_kind, image_id_of
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


class _Asked(Struct, rename={"stem": "imageId", "number": "image_id"}):
    question: Text
    image: Text | None = None  # the image's name, in VizWiz-VQA
    stem: Text | None = None  # the name without .jpg, in GQA
    number: int | None = None  # the number in the name that COCO gives the image since 2017, in A-OKVQA
    question_id: Text | None = None
    split: Words | None = None
    answer: Text | UnsetType = UNSET
    answers: list[_Answer] = []
    direct_answers: list[Words] = []
    difficult_direct_answer: bool = False


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


def read_list(wanted: Wanted, questions: Source) -> list[Record]:
    """Read GQA's {"QUESTION_ID": {...}}, or a list of VizWiz-VQA or A-OKVQA: one record per image.

    Questions of test sets have no answers. VizWiz-VQA has one question per image, whose key is the image's name.
    Questions that A-OKVQA marks with `difficult_direct_answer`, because only their choices can answer them, are counted
    in `wanted.skips` and left out.
    """
    by_image, once, skips, splits = ByImage[Question](), Once("question id"), wanted.skips, wanted.splits

    def take(at: Any) -> None:
        value = questions.json.inner(at)
        one, where = value.read(_Asked), value.where()
        stem = one.stem if one.number is None else f"{one.number:012d}"
        if (file := one.image or (stem and f"{stem}.jpg")) is None:
            value.refuse("no image", "one, as `imageId` (GQA), `image` (VizWiz-VQA) or `image_id` (A-OKVQA)")
        name = wanted.name_of(file, where)
        with once.of(key := one.question_id or (at if isinstance(at, str) else name), where):
            if one.difficult_direct_answer:
                skips.add("questions marked as difficult_direct_answer", where)
                return
            splits.note(name, one.split, value)
            given = [*(each.answer for each in one.answers), *one.direct_answers]
            listed = skips.filled(JsonValue(given, value.file, value.place), "empty answers")
            words = listed if one.answer is UNSET else (one.answer,)
            by_image.add(name, Question(key, one.question, words, answer_kind(words)), where)

    def record(name: str, items: tuple[Question, ...], where: str) -> Record:
        return wanted.record(name, where, split=splits.named.get(name), questions=items)

    entries = questions.json.value
    skips.every(entries if isinstance(entries, dict) else range(len(entries)), take, "question")
    return by_image.records(wanted, record)
