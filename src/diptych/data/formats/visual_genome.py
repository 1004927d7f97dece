"""Read Visual Genome: descriptions of regions, and questions about images (visualgenome.org, api_readme)."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, answer_kind
from diptych.data.formats.values import JsonValue, Text, Words


class _GenomeImage(Struct, kw_only=True):
    id: int | UnsetType = UNSET
    image_id: int | UnsetType = UNSET  # version 1 of Visual Genome has this key instead of `id`

    @property
    def number(self) -> int | None:
        number = self.image_id if self.id is UNSET else self.id
        return None if number is UNSET else number


class _Region(Struct):
    phrase: Words
    region_id: Any = None

    def words(self) -> tuple[str, Any]:
        return self.phrase.strip(), self.region_id


class _Described(_GenomeImage):
    regions: list[Any]


class _QuestionAnswer(Struct):
    qa_id: int
    question: Text
    answer: Text


class _WithQuestions(_GenomeImage):
    qas: list[Any]


def read_regions(wanted: Wanted, regions: Source) -> list[Record]:
    """Read `region_descriptions.json`: one record per image. Its captions are the phrases of its regions.

    Empty phrases are counted in `wanted.skips`.
    """

    def fields(value: JsonValue) -> dict[str, Any]:
        return wanted.skips.captions(value.inner("regions"), _Region, _Region.words, "empty phrases")

    return _records(wanted, regions.json, _Described, fields)


def read_questions(wanted: Wanted, questions: Source) -> list[Record]:
    """Read `question_answers.json`: one record per image."""

    once = Once("question id")

    def question(one: _QuestionAnswer, value: JsonValue) -> Question:
        once.check(one.qa_id, value.where())
        return Question(str(one.qa_id), one.question, (one.answer,), answer_kind((one.answer,)))

    def fields(value: JsonValue) -> dict[str, Any]:
        return {"questions": tuple(wanted.skips.each(value.inner("qas"), _QuestionAnswer, question))}

    return _records(wanted, questions.json, _WithQuestions, fields)


def _records(
    wanted: Wanted, value: JsonValue, kind: type[_GenomeImage], fields: Callable[[JsonValue], dict[str, Any]]
) -> list[Record]:
    """Return one record per image.

    The image file is named by the image's number. `fields` returns the other fields of a record, given its JSON value.
    """
    once = Once("image id")

    def take(at: int) -> Record:
        one = value.inner(at)
        if (number := one.read(kind).number) is None:
            one.refuse("an object without `id`", "one with `id` or `image_id`")
        with once.of(number, one.where()):
            return wanted.record(f"{number}.jpg", one.where(), **fields(one))

    return wanted.skips.every(range(len(value.read(list))), take, "image")
