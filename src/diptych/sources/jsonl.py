"""Your own data: one JSON object a line.

    {"image": "a.jpg", "captions": ["a dog in the park", "..."], "split": "train"}
    {"image": "a.jpg", "question": "what is this", "answers": ["dog", "dog", "puppy"]}

`split` may be left out. Several lines may speak of one picture. Captions that a model wrote say so (`diptych augment`):

    {"image": "a.jpg", "captions": ["a dog"], "written": [{"text": "a dog", "by": "xgpt/3f2a9c01d4e5", "score": -2.5}]}
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from diptych.core import Question, Record, Written
from diptych.errors import DataError
from diptych.sources.reading import Entry, Skips, picture_at, read_json_lines


def read(
    lines: Path,
    pictures: Path | None = None,
    split: str | Callable[[str], str] = "train",
    skips: Skips | None = None,
) -> list[Record]:
    """One record a picture, in the order of their first lines.

    `split` is that of pictures whose lines name none, or what makes one of a picture's name. Empty captions, empty
    answers and what they leave without words are passed over and counted in `skips`; an error only where nothing
    remains.
    """
    skips = Skips() if skips is None else skips
    found: dict[str, Record] = {}
    splits: dict[str, str] = {}
    for entry in read_json_lines(lines):
        name = entry["image"].text()
        if (told := entry.get("split")) is not None:
            earlier = splits.setdefault(name, told.text())
            if told.text() != earlier:
                told.refuse(f"`{told.text()}`", f"`{earlier}`, the split of an earlier line with {name}")
        old = found.get(name) or Record(name, picture=picture_at(pictures, name, entry.where))
        found[name] = _with_words(old, entry, skips)
    kept = [record for record in found.values() if record.captions or record.questions]
    if not kept:
        raise DataError(
            f"{lines.name}: found nothing to learn from ({skips if skips.counts else 'no lines'}), wanted lines with "
            "captions, or with a question and answers; add some"
        )
    drawn = split if callable(split) else lambda _: split
    return [replace(record, split=splits.get(record.key) or drawn(record.key)) for record in kept]


def _with_words(record: Record, entry: Entry, skips: Skips) -> Record:
    said, asked = entry.get("captions"), entry.get("question")
    if said is None and asked is None:
        has = ", ".join(f"`{key}`" for key in entry.names())
        entry.refuse(f"an object with {has}", "one with `captions`, or with `question` and `answers`")
    if said is not None:
        captions = _texts(said, "empty captions", skips)
        if said.is_empty():
            skips.add("lines with no captions", said.where)
        written = entry.get("written")
        by_models = tuple(_written(one, captions) for one in written.items()) if written is not None else ()
        record = replace(record, captions=record.captions + captions, written=record.written + by_models)
    if asked is not None:
        text, answers = asked.text(), _texts(entry["answers"], "empty answers", skips)
        if not answers:
            skips.add("questions with no answers", entry.where)
            return record
        key = f"{record.key}/{len(record.questions)}"
        record = replace(record, questions=(*record.questions, Question(key, text, answers, _kind(answers))))
    return record


def _written(entry: Entry, captions: tuple[str, ...]) -> Written:
    text = entry["text"].text()
    if text not in captions:
        entry["text"].refuse(f"`{text}`", "one of the line's captions")
    return Written(text, entry["by"].text(), entry["score"].number())


def _texts(entries: Entry, what: str, skips: Skips) -> tuple[str, ...]:
    for empty in (entry for entry in entries.items() if entry.is_empty()):
        skips.add(what, empty.where)
    return tuple(entry.text() for entry in entries.items() if not entry.is_empty())


def _kind(answers: tuple[str, ...]) -> str:
    """VQA v2's answer type, by what most people said."""
    most = max(set(answers), key=lambda answer: (answers.count(answer), answer)).lower()
    if most in ("yes", "no"):
        return "yes/no"
    return "number" if most.isdecimal() else "other"
