"""Visual Genome: what people wrote of regions of a picture, and their questions (visualgenome.org, api_readme)."""

from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Question, Record
from diptych.data.formats.parsing import Once, Pictures, Skips, answer_kind, picture_at, read_json
from diptych.data.formats.values import JsonValue, Text, Words


class _Picture(Struct, kw_only=True):
    id: int | UnsetType = UNSET
    image_id: int | UnsetType = UNSET  # in the first version

    def name(self, value: JsonValue, at: int, once: Once) -> str:
        """The picture's number, which its file has as a name."""
        number = self.image_id if self.id is UNSET else self.id
        if number is UNSET:
            value.refuse("an object without `id`", "one with `id` or `image_id`", f"[{at}]")
        once.check(number, value.where(f"[{at}]"))
        return str(number)


class _Region(Struct):
    phrase: Words


class _Described(_Picture):
    regions: list[_Region]


class _QuestionAnswer(Struct):
    qa_id: int
    question: Text
    answer: Text


class _Asked(_Picture):
    qas: list[_QuestionAnswer]


def read_regions(
    regions: Path | JsonValue, pictures: Path | Pictures | None = None, split: str = "train", skips: Skips | None = None
) -> list[Record]:
    """One record a picture of `region_descriptions.json`: the phrases of its regions are its captions."""
    skips = Skips() if skips is None else skips
    records, once, value = [], Once("image id"), read_json(regions)
    for at, one in enumerate(value.read(list[_Described])):
        name = one.name(value, at, once)
        captions = tuple(phrase for region in one.regions if (phrase := region.phrase.strip()))
        for place, region in enumerate(one.regions):
            if not region.phrase.strip():
                skips.add("empty phrases", value.where(f"[{at}].regions[{place}].phrase"))
        picture = picture_at(pictures, f"{name}.jpg", value.where(f"[{at}]"))
        records.append(Record(name, split, picture, captions=captions))
    return records


def read_questions(
    questions: Path | JsonValue, pictures: Path | Pictures | None = None, split: str = "train"
) -> list[Record]:
    """One record a picture of `question_answers.json`."""
    records, once, value = [], Once("image id"), read_json(questions)
    for at, one in enumerate(value.read(list[_Asked])):
        name = one.name(value, at, once)
        asked = tuple(Question(str(qa.qa_id), qa.question, (qa.answer,), answer_kind((qa.answer,))) for qa in one.qas)
        picture = picture_at(pictures, f"{name}.jpg", value.where(f"[{at}]"))
        records.append(Record(name, split, picture, questions=asked))
    return records
