"""Visual Genome: what people wrote of regions of a picture, and their questions (visualgenome.org, api_readme)."""

from pathlib import Path

from diptych.core import Question, Record
from diptych.data.formats.parsing import Entry, Once, Pictures, Skips, answer_kind, picture_at, read_json


def read_regions(
    regions: Path | Entry, pictures: Path | Pictures | None = None, split: str = "train", skips: Skips | None = None
) -> list[Record]:
    """One record a picture of `region_descriptions.json`: the phrases of its regions are its captions."""
    skips = Skips() if skips is None else skips
    records, once = [], Once("image id")
    for entry in read_json(regions).each():
        captions = []
        for region in entry["regions"].each():
            phrase = region["phrase"]
            if phrase.is_empty():
                skips.add("empty phrases", phrase.where)
            else:
                captions.append(phrase.text().strip())
        name = _name(entry, once)
        records.append(Record(name, split, picture_at(pictures, f"{name}.jpg", entry), captions=tuple(captions)))
    return records


def read_questions(
    questions: Path | Entry, pictures: Path | Pictures | None = None, split: str = "train"
) -> list[Record]:
    """One record a picture of `question_answers.json`."""
    records, once = [], Once("image id")
    for entry in read_json(questions).each():
        asked = []
        for one in entry["qas"].each():
            answer = one["answer"].text()
            asked.append(
                Question(str(one["qa_id"].integer()), one["question"].text(), (answer,), answer_kind((answer,)))
            )
        name = _name(entry, once)
        records.append(Record(name, split, picture_at(pictures, f"{name}.jpg", entry), questions=tuple(asked)))
    return records


def _name(entry: Entry, once: Once) -> str:
    """The picture's number, which its file has as a name; `image_id` in the first version, `id` in later ones."""
    number = (entry.get("id") or entry["image_id"]).integer()
    once.check(number, entry)
    return str(number)
