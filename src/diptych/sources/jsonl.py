"""Your own data: one JSON object a line.

    {"image": "a.jpg", "captions": ["a dog in the park", "..."], "split": "train"}
    {"image": "a.jpg", "question": "what is this", "answers": ["dog", "dog", "puppy"]}

`split` may be left out. Several lines may speak of one picture.
"""

from dataclasses import replace
from pathlib import Path

from diptych.core import Question, Record
from diptych.sources.reading import Entry, picture_at, read_json_lines


def read(lines: Path, pictures: Path | None = None, split: str = "train") -> list[Record]:
    """One record a picture, in the order of their first lines; `split` is that of lines that name none."""
    found: dict[str, Record] = {}
    for entry in read_json_lines(lines):
        name = entry["image"].text()
        told = entry.get("split")
        own = None if told is None else told.text()
        old = found.get(name)
        if old is None:
            old = Record(name, own or split, picture_at(pictures, name, entry.where))
        elif told is not None and own != old.split:
            told.refuse(f"`{own}`", f"`{old.split}`, the split of an earlier line with {name}")
        found[name] = _with_words(old, entry)
    return list(found.values())


def _with_words(record: Record, entry: Entry) -> Record:
    said, asked = entry.get("captions"), entry.get("question")
    if said is None and asked is None:
        has = ", ".join(f"`{key}`" for key in entry.names())
        entry.refuse(f"an object with {has}", "one with `captions`, or with `question` and `answers`")
    if said is not None:
        captions = tuple(caption.text() for caption in said.items())
        if not captions:
            said.refuse("no captions", "at least one")
        record = replace(record, captions=record.captions + captions)
    if asked is not None:
        answers = tuple(answer.text() for answer in entry["answers"].items())
        if not answers:
            entry["answers"].refuse("no answers", "at least one")
        key = f"{record.key}/{len(record.questions)}"
        question = Question(key, asked.text(), answers, _kind(answers))
        record = replace(record, questions=(*record.questions, question))
    return record


def _kind(answers: tuple[str, ...]) -> str:
    """VQA v2's answer type, by what most people said."""
    most = max(set(answers), key=lambda answer: (answers.count(answer), answer)).lower()
    if most in ("yes", "no"):
        return "yes/no"
    return "number" if most.isdecimal() else "other"
