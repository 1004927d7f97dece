"""GQA: questions with one answer each about Visual Genome's pictures (cs.stanford.edu/people/dorarad/gqa)."""

from collections import defaultdict
from pathlib import Path

from diptych.core import Question, Record
from diptych.data.formats.parsing import Entry, Pictures, answer_kind, picture_at, read_json


def read(questions: Path | Entry, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record a picture, its key the picture's number, of {"QUESTION": {"imageId", "question", "answer"}}.

    Questions of the test set have no answer.
    """
    file = read_json(questions)
    asked: dict[str, list[Question]] = defaultdict(list)
    first: dict[str, Entry] = {}
    for key in file.names():
        entry = file[key]
        name, answer = entry["imageId"].text(), entry.get("answer")
        answers = () if answer is None else (answer.text(),)
        first.setdefault(name, entry)
        asked[name].append(
            Question(key, entry["question"].text(), answers, answer_kind(answers) if answers else "other")
        )
    return [
        Record(name, split, picture_at(pictures, f"{name}.jpg", first[name]), questions=tuple(found))
        for name, found in asked.items()
    ]
