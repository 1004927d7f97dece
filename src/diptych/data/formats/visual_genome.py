"""Visual Genome: descriptions of regions, and questions about images (visualgenome.org, api_readme)."""

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, answer_kind
from diptych.data.formats.values import JsonValue, Text, Words


class _GenomeImage(Struct, kw_only=True):
    id: int | UnsetType = UNSET
    image_id: int | UnsetType = UNSET  # in the first version

    def name(self, value: JsonValue, at: int, once: Once) -> str:
        """Return the file name, which is the image's number."""
        number = self.image_id if self.id is UNSET else self.id
        if number is UNSET:
            value.refuse("an object without `id`", "one with `id` or `image_id`", f"[{at}]")
        once.check(number, value.where(f"[{at}]"))
        return f"{number}.jpg"


class _Region(Struct):
    phrase: Words


class _Described(_GenomeImage):
    regions: list[_Region]


class _QuestionAnswer(Struct):
    qa_id: int
    question: Text
    answer: Text


class _WithQuestions(_GenomeImage):
    qas: list[_QuestionAnswer]


def read_regions(wanted: Wanted, regions: Source) -> list[Record]:
    """Read `region_descriptions.json`: one record an image, its captions the phrases of its regions.

    Empty phrases are counted in `wanted.skips`.
    """
    records, once, value = [], Once("image id"), regions.json
    for at, one in enumerate(value.read(list[_Described])):
        name, where = one.name(value, at, once), value.where(f"[{at}]")
        phrases = [region.phrase.strip() for region in one.regions]
        captions = wanted.skips.filled(phrases, "empty phrases", f"{where}.regions")
        records.append(wanted.record(name, where, captions=captions))
    return records


def read_questions(wanted: Wanted, questions: Source) -> list[Record]:
    """Read `question_answers.json`: one record an image."""
    records, once, value = [], Once("image id"), questions.json
    for at, one in enumerate(value.read(list[_WithQuestions])):
        name, where = one.name(value, at, once), value.where(f"[{at}]")
        items = tuple(Question(str(qa.qa_id), qa.question, (qa.answer,), answer_kind((qa.answer,))) for qa in one.qas)
        records.append(wanted.record(name, where, questions=items))
    return records
