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
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Choices, Expression, GeneratedCaption, Object, Question, Record, Statement, TaskItem, tags
from diptych.core.record import WORDED
from diptych.data.formats import values
from diptych.data.formats.masks import Outlines, mask_of
from diptych.data.formats.parsing import Pictures, Skips, answer_kind, picture_at, read_json_lines
from diptych.runtime.errors import DataError
from diptych.vision.pictures import picture_size


class Unreadable(DataError):
    """A picture whose size cannot be told."""


class _Line(Struct):
    image: values.Text
    split: values.Text | UnsetType = UNSET


class _Generated(Struct):
    text: values.Text
    by: values.Text
    score: values.Number


class _CaptionsOfLine(Struct):
    captions: list[values.Words]
    generated: list[_Generated] = []


class _Size(Struct):
    width: values.Side
    height: values.Side


class _Thing(Struct):
    kind: values.Text
    box: values.Corners
    outline: Outlines | UnsetType = UNSET


class _Things(Struct):
    objects: list[_Thing]


class _Pointed(Struct):
    expression: values.Text
    box: values.Corners


class _Stated(Struct):
    statement: values.Text
    true: values.Flag


class _Question(Struct):
    question: values.Text
    answers: list[values.Words]


class _ChoicesOfLine(Struct):
    question: values.Text
    choices: values.Four
    answer: values.Option


class _Item(Struct):
    text: values.Text
    answers: list[values.Words] = []
    boxes: list[values.Corners] = []


class _Rationales(Struct):
    rationales: values.Four
    rationale: values.Option


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
    for value in read_json_lines(lines):
        line = value.read(_Line)
        name = line.image
        if line.split is not UNSET and (earlier := splits.setdefault(name, line.split)) != line.split:
            value.refuse(f"`{line.split}`", f"`{earlier}`, the split of an earlier line with {name}", "split")
        old = found.get(name) or Record(name, image=picture_at(pictures, name, value.where()))
        found[name] = _with_words(old, value, skips, lines.parent)
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


def _with_words(record: Record, value: values.JsonValue, skips: Skips, beside: Path) -> Record:
    line = value.value
    if not any(key in KINDS for key in line):
        has = ", ".join(f"`{key}`" for key in line)
        value.refuse(
            f"an object with {has}",
            "one with `captions`, or with `question` and `answers` (or `choices`), `expression` and `box`, `statement` "
            "and `true`, `objects`, or `more`",
        )
    if "width" in line and "height" in line:
        size = value.read(_Size)
        record = replace(record, size=(size.width, size.height))
    if "captions" in line:
        record = _with_captions(record, value, skips)
    if "expression" in line or "objects" in line:
        record = _with_boxes(record, value, skips, beside)
    if "more" in line:
        record = _with_more(record, value, skips, beside)
    if "statement" in line:
        said = value.read(_Stated)
        claim = Statement(f"{record.key}/{len(record.statements)}", said.statement, values.is_true(said.true))
        record = replace(record, statements=(*record.statements, claim))
    if "question" in line and "choices" in line:
        return replace(record, choices=(*record.choices, _choices(value, f"{record.key}/{len(record.choices)}")))
    if "question" in line:
        asked = value.read(_Question)
        if not (answers := _texts(asked.answers, "answers", value, skips)):
            skips.add("questions with no answers", value.where())
            return record
        key = f"{record.key}/{len(record.questions)}"
        question = Question(key, asked.question, answers, answer_kind(answers))
        record = replace(record, questions=(*record.questions, question))
    return record


def _with_captions(record: Record, value: values.JsonValue, skips: Skips) -> Record:
    line = value.read(_CaptionsOfLine)
    captions = _texts(line.captions, "captions", value, skips)
    if not line.captions:
        skips.add("lines with no captions", value.where("captions"))
    for at, one in enumerate(line.generated):
        if one.text not in captions:
            value.refuse(f"`{one.text}`", "one of the line's captions", f"generated[{at}].text")
    by_models = tuple(GeneratedCaption(one.text, one.by, one.score) for one in line.generated)
    return replace(record, captions=record.captions + captions, generated=record.generated + by_models)


def _with_boxes(record: Record, value: values.JsonValue, skips: Skips, beside: Path) -> Record:
    """What a line says of places in the picture."""
    try:
        size = _size(record, value, beside)
    except Unreadable:  # extraction leaves such a picture out, by name
        skips.add("boxes on pictures that cannot be read", value.where())
        return record
    record = replace(record, size=size)
    if "objects" in value.value:
        things = enumerate(value.read(_Things).objects)
        there = tuple(_object(thing, size, value.where(f"objects[{at}].box")) for at, thing in things)
        if record.objects and record.objects != there:
            value.refuse("other objects", f"those of an earlier line with {record.key}: say them once", "objects")
        record = replace(record, objects=there)
    if "expression" in value.value:
        said = value.read(_Pointed)
        key, box = f"{record.key}/{len(record.expressions)}", values.box_of(said.box, *size, value.where("box"))
        record = replace(record, expressions=(*record.expressions, Expression(key, said.expression, box)))
    return record


def _with_more(record: Record, value: values.JsonValue, skips: Skips, beside: Path) -> Record:
    """Words of further tasks. The picture's size is needed for boxes alone."""
    more, found = value.inner("more"), dict[str, tuple[TaskItem, ...]]()
    try:
        for name in more.read(dict[str, Any]):
            if name in WORDED:
                value.refuse(f"`{name}` in `more`", "the name of a further task there, and this in the line itself")
            items, first = [], len(record.more.get(name, ()))
            for at, item in enumerate((listed := more.inner(name)).read(list[_Item])):
                size = _size(record, value, beside) if item.boxes else (1, 1)
                boxes = tuple(values.box_of(box, *size, listed.where(f"[{at}].boxes")) for box in item.boxes)
                answers = _texts(item.answers, "answers", listed, skips, f"[{at}].answers")
                items.append(TaskItem(f"{record.key}/{first + at}", item.text, answers, boxes))
            found[name] = tuple(items)
    except Unreadable:
        skips.add("boxes on pictures that cannot be read", value.where())
        return record
    return record.joined(Record(record.key, record.split, more=found))


def _object(thing: _Thing, size: tuple[int, int], where: str) -> Object:
    box = values.box_of(thing.box, *size, where)
    return Object(thing.kind, box, mask=() if thing.outline is UNSET else mask_of(thing.outline, box, *size))


def _size(record: Record, value: values.JsonValue, beside: Path) -> tuple[int, int]:
    """Of the picture, in pixels: as the line says, as an earlier one did, or of the file.

    Where pictures are not asked for (their features are given), one beside the lines tells its size all the same.
    """
    if record.size is not None:
        return record.size
    picture = record.image
    if picture is None:
        with suppress(DataError):
            picture = picture_at(beside, record.key, value.where())
    if picture is None:
        value.refuse("a box of a picture that is not there", "its `width` and `height` in the line")
    try:
        return picture_size(picture)
    except DataError as error:
        raise Unreadable(str(error)) from error


def _choices(value: values.JsonValue, key: str) -> Choices:
    asked, why = value.read(_ChoicesOfLine), value.read(_Rationales) if "rationales" in value.value else None
    rationales, rationale = ((), None) if why is None else (why.rationales, why.rationale)
    return Choices(key, asked.question, asked.choices, asked.answer, rationales, rationale)


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


def _texts(texts: list[str], name: str, value: values.JsonValue, skips: Skips, place: str = "") -> tuple[str, ...]:
    """Those with words; others are counted, by default in the list of this name."""
    for at, text in enumerate(texts):
        if not text.strip():
            skips.add(f"empty {name}", value.where(f"{place or name}[{at}]"))
    return tuple(text for text in texts if text.strip())
