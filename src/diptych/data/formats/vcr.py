"""Read VCR: questions about objects of an image, each with four answers and four rationales (visualcommonsense.com)."""

import re
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from diptych.core import Choices, Object, Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.masks import Outlines, mask_of
from diptych.data.formats.parsing import Skips, picture_at, read_items, read_json
from diptych.data.formats.values import JsonValue, Number, Option, Side, Text, corner_box, refuse

# A text as a list of words and lists of indices into `objects`. The function `words` checks the words, because `Text |
# list` crashes msgspec 0.22 when the interpreter exits (msgspec issue 717).
_Tokens = list[str | list[int]]
_FourTexts = tuple[_Tokens, _Tokens, _Tokens, _Tokens]


class _VcrLine(Struct):
    annot_id: Text
    img_fn: Text
    objects: list[Text]
    question: _Tokens
    answer_choices: _FourTexts
    answer_label: Option | UnsetType = UNSET
    rationale_choices: _FourTexts | UnsetType = UNSET
    rationale_label: Option | UnsetType = UNSET
    metadata_fn: Text | UnsetType = UNSET


class _Metadata(Struct):
    width: Side
    height: Side
    names: list[Text]
    boxes: list[Annotated[list[Number], Meta(min_length=4, max_length=5)]]
    segms: list[Outlines] | UnsetType = UNSET


def read(wanted: Wanted, lines: Source, metadata: Source | None = None) -> list[Record]:
    """Read `train.jsonl`, `val.jsonl` or `test.jsonl` (which has no labels): one record per image.

    `metadata`: the folder of the JSON files with boxes, which is often the folder of images. Each line names its file.
    Without `metadata`, records have no objects.
    """
    by_image = ByImage[Choices]()
    first: dict[str, tuple[_VcrLine, JsonValue]] = {}

    def take(line: _VcrLine, value: JsonValue) -> None:
        choices, name = _choices(line, value), wanted.name_of(line.img_fn, value.where())
        known = first.setdefault(name, (line, value))[0]
        if (known.objects, known.metadata_fn) != (line.objects, line.metadata_fn):
            value.refuse("other objects or metadata", f"those of an earlier line with {line.img_fn}", "objects")
        by_image.add(name, choices, value.where())

    def record(name: str, choices: tuple[Choices, ...], where: str) -> Record:
        size, objects = (None, ()) if metadata is None else _metadata(*first[name], metadata.path, wanted.skips)
        return wanted.record(name, where, size=size, choices=choices, objects=objects)

    read_items(lines.path, wanted.skips, _VcrLine, "annot_id", "annotation id", take)
    return by_image.records(wanted, record)


def _choices(line: _VcrLine, value: JsonValue) -> Choices:
    count = len(line.objects)

    def texts(choices: _FourTexts, name: str) -> tuple[str, ...]:
        return tuple(words(choice, count, value.where(f"{name}[{at}]")) for at, choice in enumerate(choices))

    rationales = () if line.rationale_choices is UNSET else texts(line.rationale_choices, "rationale_choices")
    rationale = line.rationale_label if rationales and line.rationale_label is not UNSET else None
    # -1: the right answer is unknown, as in the test set.
    answer = -1 if line.answer_label is UNSET else line.answer_label
    question = words(line.question, count, value.where("question"))
    answers = texts(line.answer_choices, "answer_choices")
    return Choices(line.annot_id, question, answers, answer, rationales, rationale)


def words(tokens: _Tokens, count: int, where: str) -> str:
    """Join VCR's tokens to a text.

    A list of object indices, such as [0, 2], becomes `[0] and [2]`. Raises DataError for an index outside the `count`
    objects, and for an empty token.
    """
    texts = []
    for at, token in enumerate(tokens):
        if isinstance(token, str):
            if not token.strip():
                refuse(f"{where}[{at}]", "an empty text", "words")
            texts.append(token)
            continue
        if unknown := [index for index in token if not 0 <= index < count]:
            refuse(f"{where}[{at}]", f"object {unknown[0]}", f"one of the {count} in `objects`")
        texts.append(" and ".join(f"[{index}]" for index in token))
    if not texts:
        refuse(where, "no words", "at least one")
    return JsonValue(" ".join(texts), where).read(Text)


def tokens(text: str) -> list[str | list[int]]:
    """Split a text into VCR's tokens: `[0] is red` becomes [[0], "is", "red"]."""
    return [[int(word[1:-1])] if re.fullmatch(r"\[\d+\]", word) else word for word in text.split()]


def _metadata(
    line: _VcrLine, value: JsonValue, folder: Path, skips: Skips
) -> tuple[tuple[int, int], tuple[Object, ...]]:
    if line.metadata_fn is UNSET:
        value.refuse("an object without `metadata_fn`", "the metadata's name in it")
    path = picture_at(folder, line.metadata_fn, value.where())
    assert path is not None
    file = read_json(path)
    known = file.read(_Metadata)
    names, size = known.names, (known.width, known.height)
    outlines = [[]] * len(names) if known.segms is UNSET else known.segms
    for name, listed in (("boxes", known.boxes), ("segms", outlines)):
        if len(listed) != len(names):
            file.refuse(f"a list of {len(listed)} items", f"{len(names)} items", name)
    if names != line.objects:
        file.refuse(f"{len(names)} names", f"the `objects` of {value.where()}", "names")
    boxes = [corner_box(box, *size, file.where(f"boxes[{at}]"), skips.add) for at, box in enumerate(known.boxes)]
    objects = zip(names, boxes, outlines, strict=True)
    return size, tuple(Object(name, box, mask=mask_of(outline, box, *size)) for name, box, outline in objects)
