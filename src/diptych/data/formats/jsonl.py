"""Read your own data: one JSON object per line.

    {"image": "a.jpg", "captions": ["a dog in the park", "..."], "split": "train"}
    {"image": "a.jpg", "question": "what is this", "answers": ["dog", "dog", "puppy"]}
    {"image": "a.jpg", "questions": [{"question": "what is this", "answers": ["dog"]}, {"question": "...", ...}]}
    {"image": "a.jpg", "expression": "the small dog", "box": [10, 20, 30, 40]}
    {"image": "a.jpg", "statement": "there are two dogs", "true": false}
    {"image": "a.jpg", "objects": [{"kind": "dog", "box": [10, 20, 30, 40]}]}
    {"image": "a.jpg", "text": "what a day", "label": "funny"}
    {"image": "a.jpg", "more": {"entailment": [{"text": "a dog sleeps", "answers": ["neutral"]}]}}
    {"image": "a.jpg", "question": "why does [0] run", "choices": ["it plays", "it rests", "it eats", "it hides"],
     "answer": 0, "rationales": ["[0] has a ball", "...", "...", "..."], "rationale": 0}

Boxes are left, top, width, height in pixels, as in COCO. `[0]` is the first of the image's `objects`. `split` is
optional. Several lines may have the same image. `more` maps the name of another task to its texts; each entry may also
have `boxes`. `image_id`, `question_id` and `caption_ids` (one per caption) are copied to results, for evaluation
servers.

Captions that a model generated are in `generated`, as `diptych augment` writes them:

    {"image": "a.jpg", "captions": ["a dog"], "generated": [{"text": "a dog", "by": "xgpt/3f2a9c01d4", "score": -2.5}]}
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Choices, Expression, GeneratedCaption, Object, Question, Record, Statement, TaskItem, tags
from diptych.core.entailment import ENTAILMENT, LABELS
from diptych.core.labels import CLASSIFY
from diptych.core.record import WORDED
from diptych.data.formats import parsing, values
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.masks import Outlines, mask_of
from diptych.data.formats.parsing import Skips, answer_kind, each_json_line, image_id_of, named_captions, picture_at
from diptych.runtime.errors import DataError
from diptych.vision.image_files import orientation, picture_size, same_shape


class Unreadable(DataError):
    """An image whose size cannot be read."""


class _Line(Struct):
    image: values.Text
    split: values.Words | None = None
    image_id: int | None = None


class _Generated(Struct):
    text: values.Text
    by: values.Text
    score: values.Number


class _CaptionsOfLine(Struct):
    captions: list[Any]
    caption_ids: list[Any] = []
    generated: list[_Generated] = []


class _Size(Struct):
    width: values.Side
    height: values.Side


class _Thing(Struct):
    kind: values.Text
    box: values.Corners
    outline: Outlines | UnsetType = UNSET


class _Things(Struct):
    objects: list[Any]


class _Pointed(Struct):
    expression: values.Text
    box: values.Corners


class _Stated(Struct):
    statement: values.Text
    true: values.Flag


class _Question(Struct):
    question: values.Text
    answers: list[Any]
    question_id: int | values.Words | None = None


class _ChoicesOfLine(Struct):
    question: values.Text
    choices: values.Four
    answer: values.Option
    question_id: int | values.Words | None = None


class _Item(Struct):
    text: values.Text
    answers: list[Any] = []
    boxes: list[values.Corners] = []


class _Labelled(Struct):
    text: values.Text
    label: int | values.Text


class _Rationales(Struct):
    rationales: values.Four
    rationale: values.Option


_TEXT: Any = values.Words
MEANT = {"set", "subset", "partition"}  # keys that users may write instead of `split`
KINDS = ("captions", "question", "questions", "expression", "statement", "label", "objects", "more")


def read(wanted: Wanted, lines: Source) -> list[Record]:
    """Read one record per image, in the order of its first line. The key is the image's name.

    Empty captions and answers, lines without words, and invalid lines are counted in `wanted.skips` and left out.
    Raises DataError if no record is left.
    """
    reader = _LineReader(wanted.skips, lines.path.parent, wanted.stored_boxes)
    records, splits, ids, keys = dict[str, Record](), wanted.splits, dict[str, int](), set[str]()

    def take(value: values.JsonValue) -> None:
        line = value.read(_Line)
        name = wanted.name_of(line.image, value.where())
        split = (line.split or "").strip() and line.split
        new = set[str]() if split else value.value.keys() - keys - {"split"}
        if close := [*sorted(new & MEANT), *get_close_matches("split", new, 1, 0.75)]:
            wanted.skips.add(f"key {close[0]!r} is not read; did you mean split?", value.where())
        keys.update(value.value)
        if split:
            splits.check(name, split, value, "line")
        old = records.get(name) or wanted.record(name, value.where(), key=name)
        if line.image_id is not None:
            if (known := ids.setdefault(name, line.image_id)) != line.image_id:
                value.refuse(f"{line.image_id}", f"{known}, the id of an earlier line with {name}", "image_id")
            old = replace(old, image_id=image_id_of(name, line.image_id))
        records[name] = reader.added(old, value)
        if split:
            splits.named[name] = split

    each_json_line(lines.path, wanted.skips, take)
    tagged = wanted.records(records.values(), lambda record: reader.with_known_tags(record, lines.path.name))
    filled = [record for record in tagged if any(record.words().values())]
    if not filled:
        why = str(wanted.skips) if wanted.skips.counts else "no texts" if records else "no lines"
        raise DataError(
            f"{lines.path.name}: found nothing to train on ({why}), expected lines with captions, or with a question "
            "and answers; add some"
        )
    return [replace(record, split=splits.named.get(record.key) or record.split) for record in filled]


@dataclass(frozen=True)
class _LineReader:
    """Adds the content of each line to the record of its image."""

    skips: Skips
    folder: Path  # folder that contains the JSON lines
    stored_boxes: bool  # see `Wanted`
    # Images with an invalid object; tags in their texts, such as [3], are not checked.
    lost: set[str] = field(default_factory=set)
    question_ids: parsing.Once = field(default_factory=lambda: parsing.Once("question id"))
    # The ids of questions with `choices`.
    choice_ids: parsing.Once = field(default_factory=lambda: parsing.Once("question id"))

    def added(self, record: Record, value: values.JsonValue) -> Record:
        line = value.value
        if not any(key in KINDS for key in line):
            has = ", ".join(f"`{key}`" for key in line)
            value.refuse(
                f"an object with {has}",
                "one with `captions`, or with `question` and `answers` (or `choices`), `questions`, `expression` and "
                "`box`, `statement` and `true`, `text` and `label`, `objects`, or `more`",
            )
        if "width" in line and "height" in line:
            sides = value.read(_Size)
            size = sides.width, sides.height
            if record.size is not None and not same_shape(record.size, size):
                value.refuse(f"{size[0]} x {size[1]} pixels", f"{record.size}, its size in an earlier line or the file")
            record = replace(record, size=size)
        if "captions" in line:
            record = self._with_captions(record, value)
        for names, add in ((("expression", "objects"), self._with_boxes), (("more",), self._with_more)):
            if any(name in line for name in names):
                try:
                    record = add(record, value)
                except Unreadable:  # the image cannot be read, which extraction will report
                    self.skips.add("boxes on images that cannot be read", value.where())
        if "label" in line:
            made, there = value.read(_Labelled), record.more.get(CLASSIFY, ())
            item = TaskItem(f"{record.key}/{len(there)}", made.text, (str(made.label),))
            record = replace(record, more={**record.more, CLASSIFY: (*there, item)})
        if "statement" in line:
            claim = value.read(_Stated)
            statement = Statement(f"{record.key}/{len(record.statements)}", claim.statement, values.is_true(claim.true))
            record = replace(record, statements=(*record.statements, statement))
        if "question" in line:
            record = self._with_question(record, value)
        if "questions" in line:
            steps, listed = [record], value.inner("questions").items()
            self.skips.every(listed, lambda one: steps.append(self._with_question(steps[-1], one)), "question")
            record = steps[-1]
        return record

    def _with_captions(self, record: Record, value: values.JsonValue) -> Record:
        line = value.read(_CaptionsOfLine)
        if line.caption_ids and len(line.caption_ids) != len(line.captions):
            one_each = f"one for each of {len(line.captions)} captions"
            value.refuse(f"{len(line.caption_ids)} ids", one_each, "caption_ids")
        texts = value.inner("captions")

        def one(at: int) -> tuple[str, Any]:
            if not (text := texts.inner(at).read(_TEXT)).strip():
                self.skips.add("empty captions", texts.inner(at).where())
            given = line.caption_ids[at] if line.caption_ids else None
            if given is not None and not values.text_of_id(given):
                self.skips.add("caption ids that are neither a text nor a whole number", value.where("caption_ids"))
            return text, given

        listed = self.skips.every(range(len(line.captions)), one, "text")
        named = named_captions(pair for pair in listed if pair[0].strip())
        if not line.captions:
            self.skips.add("lines with no captions", value.where("captions"))
        for number, marked in enumerate(line.generated):
            if marked.text not in named["captions"]:
                value.refuse(f"`{marked.text}`", "one of the line's captions", f"generated[{number}].text")
        by_models = tuple(GeneratedCaption(each.text, each.by, each.score) for each in line.generated)
        return record.joined(Record(record.key, generated=by_models, **named))

    def _with_boxes(self, record: Record, value: values.JsonValue) -> Record:
        size = self._size(record, value)
        record = replace(record, size=size)
        if "objects" in value.value:
            count, listed = len(value.read(_Things).objects), value.inner("objects")
            objects = tuple(self.skips.each(listed, _Thing, lambda one, at: self._object(one, size, at.where("box"))))
            if len(objects) < count:
                self.lost.add(record.key)
            if record.objects and record.objects != objects:
                value.refuse("other objects", f"the same as in an earlier line with {record.key}, or none", "objects")
            record = replace(record, objects=objects)
        if "expression" in value.value:
            line = value.read(_Pointed)
            key = f"{record.key}/{len(record.expressions)}"
            box = values.box_of(line.box, *size, value.where("box"), self.skips.add)
            record = replace(record, expressions=(*record.expressions, Expression(key, line.expression, box)))
        return record

    def _object(self, thing: _Thing, size: tuple[int, int], where: str) -> Object:
        box = values.box_of(thing.box, *size, where, self.skips.add)
        return Object(thing.kind, box, mask=() if thing.outline is UNSET else mask_of(thing.outline, box, *size))

    def _with_more(self, record: Record, value: values.JsonValue) -> Record:
        """Add the texts of other tasks from `more`. The image's size is needed only for boxes."""
        more, tasks = value.inner("more"), dict[str, tuple[TaskItem, ...]]()
        for name in more.read(dict[str, Any]):
            if name in WORDED:
                value.refuse(f"`{name}` in `more`", "this field outside `more`, and only other tasks in it")
            first = len(record.more.get(name, ()))
            keys = (f"{record.key}/{first + at}" for at in itertools.count())

            def item(one: _Item, place: values.JsonValue, keys: Iterator[str] = keys, name: str = name) -> TaskItem:
                size = self._size(record, value) if one.boxes else (1, 1)
                boxes = tuple(values.box_of(box, *size, place.where("boxes"), self.skips.add) for box in one.boxes)
                answers = self.skips.filled(place.inner("answers"), "empty answers") if one.answers else ()
                if name == ENTAILMENT and answers and answers[0].strip().lower() not in LABELS:
                    place.refuse(f"`{answers[0]}`", f"one of {', '.join(LABELS)}", "answers")
                return TaskItem(next(keys), one.text, answers, boxes)

            tasks[name] = tuple(self.skips.each(more.inner(name), _Item, item))
        return record.joined(Record(record.key, record.split, more=tasks))

    def _with_question(self, record: Record, value: values.JsonValue) -> Record:
        if "choices" in value.read(dict[str, Any]):
            return self._with_choices(record, value)
        line = value.read(_Question)
        if not (answers := self.skips.filled(value.inner("answers"), "empty answers")):
            self.skips.add("questions with no answers", value.where())
            return record
        key = f"{record.key}/{len(record.questions)}" if line.question_id is None else str(line.question_id)
        self.question_ids.check(key, value.where())
        question = Question(key, line.question, answers, answer_kind(answers))
        return replace(record, questions=(*record.questions, question))

    def _with_choices(self, record: Record, value: values.JsonValue) -> Record:
        line, why = value.read(_ChoicesOfLine), value.read(_Rationales) if "rationales" in value.value else None
        rationales, rationale = ((), None) if why is None else (why.rationales, why.rationale)
        key = f"{record.key}/{len(record.choices)}" if line.question_id is None else str(line.question_id)
        self.choice_ids.check(key, value.where())
        choices = Choices(key, line.question, line.choices, line.answer, rationales, rationale)
        return replace(record, choices=(*record.choices, choices))

    def with_known_tags(self, record: Record, file: str) -> Record:
        """Remove choices with a tag, such as `[3]`, that refers to no object.

        This is checked last, because a later line may have the objects.
        """
        count = 0 if record.key in self.lost else len(record.objects)

        def known(choices: Choices) -> Choices:
            for text in (choices.question, *choices.answers, *choices.rationales):
                for tag in tags(text):
                    if tag >= count:
                        raise DataError(
                            f"{file}: found [{tag}] in “{text}”, expected one of the {count} objects of {record.key}, "
                            "counted from 0; add the object to the `objects` of a line with that image"
                        )
            return choices

        return replace(record, choices=tuple(self.skips.every(record.choices, known, "choices")))

    def _size(self, record: Record, value: values.JsonValue) -> tuple[int, int]:
        """Return the image's width and height in pixels, from this line, an earlier line or the image file.

        If features are given, images are not required; an image file next to the JSON lines is still used for the size.
        """
        if record.size is not None:
            return record.size
        image = record.image
        if image is None:
            with suppress(DataError):
                image = picture_at(self.folder, record.key, value.where())
        if image is None:
            value.refuse("a box of a missing image", "the image's `width` and `height` in the line")
        try:
            size = picture_size(image)
            return size[::-1] if self.stored_boxes and record.image and orientation(image) in range(5, 9) else size
        except DataError as error:
            raise Unreadable(str(error)) from error
