"""VQA v2: questions and ten answers each (visualqa.org)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from diptych.core import Question, Record
from diptych.sources.parsing import Entry, Once, key_of, picture_at, read_json


def read(
    questions: Path,
    annotations: Path | None = None,
    pictures: Path | None = None,
    split: str = "train",
    name: Callable[[int], str] | None = None,
) -> list[Record]:
    """One record a picture. Without `annotations` (the test set) questions have no answers.

    `name` says what the picture of a number is called; the default is COCO's way, by the file's `data_subtype`.
    """
    file = read_json(questions)
    answers = {} if annotations is None else _answers(read_json(annotations))
    once = Once("question id")
    asked: dict[int, list[Question]] = defaultdict(list)
    for entry in file["questions"].items():
        number = entry["question_id"].integer()
        once.check(number, entry.where)
        if annotations is not None and number not in answers:
            entry["question_id"].refuse(f"question {number}", f"one that {annotations.name} answers")
        said, kind = answers.get(number, ((), "other"))
        asked[entry["image_id"].integer()].append(Question(str(number), entry["question"].text(), said, kind))
    subset = file["data_subtype"].text() if pictures is not None and name is None else ""
    records = []
    for number, found in asked.items():
        file_name = f"COCO_{subset}_{number:012d}.jpg" if name is None else name(number)
        picture = picture_at(pictures, file_name, f"{questions.name}: image {number}")
        records.append(Record(key_of(split, number), split, picture, questions=tuple(found)))
    return records


def _answers(file: Entry) -> dict[int, tuple[tuple[str, ...], str]]:
    """By question id: the answers and the answer type, which some exports leave out."""
    found: dict[int, tuple[tuple[str, ...], str]] = {}
    once = Once("question id")
    for note in file["annotations"].items():
        number = note["question_id"].integer()
        once.check(number, note.where)
        said = tuple(answer["answer"].text() for answer in note["answers"].items())
        if not said:
            note["answers"].refuse("no answers", "at least one")
        told = note.get("answer_type")
        kind = "other" if told is None else told.text()
        if told is not None and kind not in ("yes/no", "number", "other"):
            told.refuse(f"`{kind}`", "yes/no, number or other")
        found[number] = said, kind
    return found
