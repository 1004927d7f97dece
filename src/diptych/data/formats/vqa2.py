"""VQA v2: questions and ten answers each (visualqa.org)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from diptych.core import Question, Record
from diptych.data.formats.parsing import Entry, Once, Pictures, key_of_name, picture_at, read_json

_SUBSETS = {"test-dev2015": "test2015"}  # a part of those pictures, which keep their names


def read(
    questions: Path | Entry,
    annotations: Path | Entry | None = None,
    pictures: Path | Pictures | None = None,
    split: str = "train",
    name: Callable[[int], str] | None = None,
) -> list[Record]:
    """One record a picture, its key the picture's name. Without `annotations` (the test set) questions have no answers.

    `name` says what the picture of a number is called; the default is COCO's way, by the file's `data_subtype`.
    """
    file = read_json(questions)
    answered = None if annotations is None else read_json(annotations)
    answers = {} if answered is None else _answers(answered)
    once = Once("question id")
    asked: dict[int, list[Question]] = defaultdict(list)
    for entry in file["questions"].items():
        number = entry["question_id"].integer()
        once.check(number, entry)
        if answered is not None and number not in answers:
            entry["question_id"].refuse(f"question {number}", f"one that {answered.where} answers")
        words, kind = answers.get(number, ((), "other"))
        asked[entry["image_id"].integer()].append(Question(str(number), entry["question"].text(), words, kind))
    subset = file["data_subtype"].text() if name is None else ""
    records = []
    for number, found in asked.items():
        file_name = f"COCO_{_SUBSETS.get(subset, subset)}_{number:012d}.jpg" if name is None else name(number)
        picture = picture_at(pictures, file_name, f"{file.where}: image {number}")
        records.append(Record(key_of_name(file_name), split, picture, questions=tuple(found)))
    return records


def _answers(file: Entry) -> dict[int, tuple[tuple[str, ...], str]]:
    """By question id: the answers and the answer type, which some exports leave out."""
    found: dict[int, tuple[tuple[str, ...], str]] = {}
    once = Once("question id")
    for note in file["annotations"].items():
        number = note["question_id"].integer()
        once.check(number, note)
        words = tuple(answer["answer"].text() for answer in note["answers"].items())
        if not words:
            note["answers"].refuse("no answers", "at least one")
        named = note.get("answer_type")
        kind = "other" if named is None else named.text()
        if named is not None and kind not in ("yes/no", "number", "other"):
            named.refuse(f"`{kind}`", "yes/no, number or other")
        found[number] = words, kind
    return found
