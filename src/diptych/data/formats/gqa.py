"""GQA: questions with one answer each about Visual Genome's pictures (cs.stanford.edu/people/dorarad/gqa)."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.parsing import Pictures, answer_kind, picture_at, read_json
from diptych.data.formats.values import JsonValue, Text


class _GqaQuestion(Struct, rename="camel"):
    image_id: Text
    question: Text
    answer: Text | UnsetType = UNSET


def read(questions: Path | JsonValue, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record a picture, its key the picture's number, of {"QUESTION": {"imageId", "question", "answer"}}.

    Questions of the test set have no answer.
    """
    file = read_json(questions)
    asked: dict[str, list[Question]] = defaultdict(list)
    first: dict[str, str] = {}
    for key in file.read(dict[str, Any]):
        value = file.inner(key)
        one = value.read(_GqaQuestion)
        answers = () if one.answer is UNSET else (one.answer,)
        first.setdefault(one.image_id, value.where())
        asked[one.image_id].append(Question(key, one.question, answers, answer_kind(answers) if answers else "other"))
    return [
        Record(name, split, picture_at(pictures, f"{name}.jpg", first[name]), questions=tuple(found))
        for name, found in asked.items()
    ]
