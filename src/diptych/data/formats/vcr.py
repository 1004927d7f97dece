"""VCR: a question, four answers and four rationales about objects of a picture (visualcommonsense.com)."""

import re
from collections import defaultdict
from pathlib import Path

from diptych.core import Choices, Object, Record
from diptych.data.formats.masks import mask_of
from diptych.data.formats.parsing import Entry, Once, Pictures, key_of_name, picture_at, read_json, read_json_lines

_FOUR = 4


def read(
    lines: Path, pictures: Path | Pictures | None = None, metadata: Path | None = None, split: str = "train"
) -> list[Record]:
    """One record a picture of `train.jsonl`, `val.jsonl` or `test.jsonl` (which has no labels).

    `metadata` is the folder of the boxes' files, named in the lines (often that of the pictures); without it
    records have no objects. A key is the picture's name without its ending.
    """
    once = Once("annotation id")
    found: dict[str, list[Choices]] = defaultdict(list)
    first: dict[str, Entry] = {}
    for entry in read_json_lines(lines):
        once.check(entry["annot_id"].text(), entry.where)
        name = entry["img_fn"].text()
        first.setdefault(name, entry)
        found[name].append(_choices(entry))
    records = []
    for name, choices in found.items():
        entry = first[name]
        size, objects = (None, ()) if metadata is None else _metadata(entry, metadata)
        picture = picture_at(pictures, name, entry)
        key = key_of_name(name)
        records.append(Record(key, split, picture, size, choices=tuple(choices), objects=objects))
    return records


def _choices(entry: Entry) -> Choices:
    count = len(entry["objects"].items())
    answers, answer = _options(entry, "answer", count)
    rationales, rationale = _options(entry, "rationale", count) if entry.get("rationale_choices") else ((), None)
    if answer is None:  # the test set
        answer = -1
    return Choices(entry["annot_id"].text(), words(entry["question"], count), answers, answer, rationales, rationale)


def _options(entry: Entry, what: str, count: int) -> tuple[tuple[str, ...], int | None]:
    texts = tuple(words(choice, count) for choice in entry[f"{what}_choices"].items(_FOUR))
    label = entry.get(f"{what}_label")
    if label is not None and not 0 <= label.integer() < _FOUR:
        label.refuse(str(label.value), "0, 1, 2 or 3")
    return texts, None if label is None else label.integer()


def words(entry: Entry, count: int) -> str:
    """VCR's tokens as text: a list of indices, such as [0, 2], becomes `[0] and [2]`."""
    texts = []
    for token in entry.items():
        if isinstance(token.value, str):
            texts.append(token.text())
            continue
        for index in token.items():
            if not 0 <= index.integer() < count:
                index.refuse(f"object {index.value}", f"one of the {count} in `objects`")
        texts.append(" and ".join(f"[{index.value}]" for index in token.items()))
    if not texts:
        entry.refuse("no words", "at least one")
    return " ".join(texts)


def tokens(text: str) -> list[str | list[int]]:
    """The way back: `[0] is red` becomes [[0], "is", "red"]."""
    return [[int(word[1:-1])] if re.fullmatch(r"\[\d+\]", word) else word for word in text.split()]


def _metadata(entry: Entry, folder: Path) -> tuple[tuple[int, int], tuple[Object, ...]]:
    path = picture_at(folder, entry["metadata_fn"].text(), entry.where)
    assert path is not None
    file = read_json(path)
    width, height = file["width"].size(), file["height"].size()
    names = [name.text() for name in file["names"].items()]
    boxes = [box.corner_pixels(width, height) for box in file["boxes"].items(len(names))]
    if names != [name.text() for name in entry["objects"].items()]:
        file["names"].refuse(f"{len(names)} names", f"the `objects` of {entry.where}")
    outlines = file["segms"].items(len(names)) if file.get("segms") is not None else ()
    masks = [mask_of(outline, box, width, height) for outline, box in zip(outlines, boxes, strict=False)]
    objects = zip(names, boxes, masks or [()] * len(names), strict=True)
    return (width, height), tuple(Object(name, box, mask=mask) for name, box, mask in objects)
