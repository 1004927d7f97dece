"""Your own data: one JSON object a line.

    {"image": "a.jpg", "captions": ["a dog in the park", "..."], "split": "train"}
    {"image": "a.jpg", "question": "what is this", "answers": ["dog", "dog", "puppy"]}
    {"image": "a.jpg", "expression": "the small dog", "box": [10, 20, 30, 40]}
    {"image": "a.jpg", "statement": "there are two dogs", "true": false}
    {"image": "a.jpg", "objects": [{"kind": "dog", "box": [10, 20, 30, 40]}]}
    {"image": "a.jpg", "more": {"entailment": [{"text": "a dog sleeps", "answers": ["neutral"]}]}}
    {"image": "a.jpg", "question": "why does [0] run", "choices": ["it plays", "it rests", "it eats", "it hides"],
     "answer": 0, "rationales": ["[0] has a ball", "...", "...", "..."], "rationale": 0}

Boxes are COCO's: left, top, width, height in pixels. `[0]` is the first of the picture's `objects`. `split` may be left
out. Several lines may speak of one picture. `more` has the words of further tasks by their names; an entry may have
`boxes` too.

Captions that a model wrote say so (`diptych augment`):

    {"image": "a.jpg", "captions": ["a dog"], "generated": [{"text": "a dog", "by": "xgpt/3f2a9c01d4", "score": -2.5}]}
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from diptych.core import Choices, Expression, GeneratedCaption, Object, Question, Record, Statement, TaskItem, tags
from diptych.core.record import WORDED
from diptych.data.formats.masks import mask_of
from diptych.data.formats.parsing import Entry, Pictures, Skips, answer_kind, picture_at, read_json_lines
from diptych.runtime.errors import DataError
from diptych.vision.pictures import picture_size


class Unreadable(DataError):
    """A picture whose size cannot be told."""


KINDS = ("captions", "question", "expression", "statement", "objects", "more")


def read(
    lines: Path,
    pictures: Path | Pictures | None = None,
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
        if (named := entry.get("split")) is not None:
            earlier = splits.setdefault(name, named.text())
            if named.text() != earlier:
                named.refuse(f"`{named.text()}`", f"`{earlier}`, the split of an earlier line with {name}")
        old = found.get(name) or Record(name, image=picture_at(pictures, name, entry.where))
        found[name] = _with_words(old, entry, skips, lines.parent)
    for record in found.values():
        _named(record, lines.name)
    kept = [record for record in found.values() if any(record.words().values())]
    if not kept:
        raise DataError(
            f"{lines.name}: found nothing to learn from ({skips if skips.counts else 'no lines'}), wanted lines with "
            "captions, or with a question and answers; add some"
        )
    drawn = split if callable(split) else lambda _: split
    return [replace(record, split=splits.get(record.key) or drawn(record.key)) for record in kept]


def _with_words(record: Record, entry: Entry, skips: Skips, beside: Path) -> Record:
    texts, asked = entry.get("captions"), entry.get("question")
    if not any(key in KINDS for key in entry.names()):
        has = ", ".join(f"`{key}`" for key in entry.names())
        entry.refuse(
            f"an object with {has}",
            "one with `captions`, or with `question` and `answers` (or `choices`), `expression` and `box`, `statement` "
            "and `true`, `objects`, or `more`",
        )
    if texts is not None:
        captions = _texts(texts, "empty captions", skips)
        if texts.is_empty():
            skips.add("lines with no captions", texts.where)
        generated = entry.get("generated")
        by_models = tuple(_generated(one, captions) for one in generated.items()) if generated is not None else ()
        record = replace(record, captions=record.captions + captions, generated=record.generated + by_models)
    if entry.get("width") is not None and entry.get("height") is not None:
        record = replace(record, size=(entry["width"].size(), entry["height"].size()))
    record = _with_more(_with_boxes(record, entry, skips, beside), entry, skips, beside)
    if (statement := entry.get("statement")) is not None:
        key = f"{record.key}/{len(record.statements)}"
        claim = Statement(key, statement.text(), entry["true"].flag())
        record = replace(record, statements=(*record.statements, claim))
    if asked is not None and entry.get("choices") is not None:
        return replace(record, choices=(*record.choices, _choices(entry, f"{record.key}/{len(record.choices)}")))
    if asked is not None:
        text, answers = asked.text(), _texts(entry["answers"], "empty answers", skips)
        if not answers:
            skips.add("questions with no answers", entry.where)
            return record
        key = f"{record.key}/{len(record.questions)}"
        record = replace(record, questions=(*record.questions, Question(key, text, answers, answer_kind(answers))))
    return record


def _with_boxes(record: Record, entry: Entry, skips: Skips, beside: Path) -> Record:
    """What a line says of places in the picture."""
    expression, objects = entry.get("expression"), entry.get("objects")
    if expression is None and objects is None:
        return record
    try:
        size = _size(record, entry, beside)
    except Unreadable:  # extraction leaves such a picture out, by name
        skips.add("boxes on pictures that cannot be read", entry.where)
        return record
    record = replace(record, size=size)
    if objects is not None:
        there = tuple(_thing(thing, size) for thing in objects.items())
        if record.objects and record.objects != there:
            objects.refuse("other objects", f"those of an earlier line with {record.key}: say them once")
        record = replace(record, objects=there)
    if expression is not None:
        key = f"{record.key}/{len(record.expressions)}"
        meant = Expression(key, expression.text(), entry["box"].corners(*size))
        record = replace(record, expressions=(*record.expressions, meant))
    return record


def _with_more(record: Record, entry: Entry, skips: Skips, beside: Path) -> Record:
    """Words of further tasks. The picture's size is needed for boxes alone."""
    more, found = entry.get("more"), dict[str, tuple[TaskItem, ...]]()
    try:
        for name in more.names() if more is not None else ():
            if name in WORDED:
                entry.refuse(f"`{name}` in `more`", "the name of a further task there, and this in the line itself")
            first = len(record.more.get(name, ()))
            found[name] = tuple(
                TaskItem(
                    f"{record.key}/{number}",
                    item["text"].text(),
                    _texts(item["answers"], "empty answers", skips) if item.get("answers") else (),
                    tuple(box.corners(*_size(record, entry, beside)) for box in item["boxes"].items())
                    if item.get("boxes")
                    else (),
                )
                for number, item in enumerate(entry["more"][name].items(), start=first)
            )
    except Unreadable:
        skips.add("boxes on pictures that cannot be read", entry.where)
        return record
    return record.joined(Record(record.key, record.split, more=found))


def _thing(entry: Entry, size: tuple[int, int]) -> Object:
    box, outlines = entry["box"].corners(*size), entry.get("outline")
    return Object(entry["kind"].text(), box, mask=mask_of(outlines, box, *size) if outlines is not None else ())


def _size(record: Record, entry: Entry, beside: Path) -> tuple[int, int]:
    """Of the picture, in pixels: as the line says, as an earlier one did, or of the file.

    Where pictures are not asked for (their features are given), one beside the lines tells its size all the same.
    """
    if entry.get("width") is not None:
        return entry["width"].size(), entry["height"].size()
    if record.size is not None:
        return record.size
    picture = record.image
    if picture is None:
        with suppress(DataError):
            picture = picture_at(beside, record.key, entry.where)
    if picture is None:
        entry.refuse("a box of a picture that is not there", "its `width` and `height` in the line")
    try:
        return picture_size(picture)
    except DataError as error:
        raise Unreadable(str(error)) from error


def _choices(entry: Entry, key: str) -> Choices:
    answers, answer = _options(entry, "choices", "answer")
    rationales, rationale = _options(entry, "rationales", "rationale") if entry.get("rationales") else ((), None)
    assert answer is not None
    return Choices(key, entry["question"].text(), answers, answer, rationales, rationale)


def _options(entry: Entry, texts: str, right: str) -> tuple[tuple[str, ...], int | None]:
    options = tuple(text.text() for text in entry[texts].items(4))
    label = entry[right]
    if not 0 <= label.integer() < len(options):
        label.refuse(str(label.value), "0, 1, 2 or 3")
    return options, label.integer()


def _named(record: Record, file: str) -> None:
    """Refuse a tag that names no thing. Objects may stand in a later line, so this is checked last."""
    for choices in record.choices:
        for text in (choices.question, *choices.answers, *choices.rationales):
            for tag in tags(text):
                if tag >= len(record.objects):
                    raise DataError(
                        f"{file}: found [{tag}] in “{text}”, wanted one of the {len(record.objects)} objects of "
                        f"{record.key}, counted from 0; add it to the `objects` of a line with that picture"
                    )


def _generated(entry: Entry, captions: tuple[str, ...]) -> GeneratedCaption:
    text = entry["text"].text()
    if text not in captions:
        entry["text"].refuse(f"`{text}`", "one of the line's captions")
    return GeneratedCaption(text, entry["by"].text(), entry["score"].number())


def _texts(entries: Entry, what: str, skips: Skips) -> tuple[str, ...]:
    for empty in (entry for entry in entries.items() if entry.is_empty()):
        skips.add(what, empty.where)
    return tuple(entry.text() for entry in entries.items() if not entry.is_empty())
