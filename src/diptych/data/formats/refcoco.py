"""RefCOCO, RefCOCO+, RefCOCOg (github.com/lichengunc/refer): the official two files, or one JSON of our own.

The official `refs(unc).p` is a pickle; it is read by a reader of plain values that runs nothing (`runtime.unpickle`).
Its boxes stand in `instances.json` beside it, a COCO file. The same list as JSON is read too, and

    {"images": [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}],
     "refs": [{"ref_id": 1, "image_id": 7, "bbox": [left, top, width, height],
               "category": "dog", "sentences": [{"sent_id": 3, "sent": "the small dog"}]}]}

with boxes in pixels, as in COCO.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from diptych.core import Expression, Record
from diptych.data.formats.parsing import Entry, Once, Pictures, key_of_name, picture_at, read_json
from diptych.runtime import unpickle


def read(
    refs: Path | Entry,
    pictures: Path | Pictures | None = None,
    split: str | Callable[[str], str] = "train",
    instances: Path | Entry | None = None,
) -> list[Record]:
    """One record a picture that has expressions, its key the picture's name.

    Of refs that name their split only those of `split` are read; where that makes a split of a picture's name, each
    keeps its own, and those that name none get what it makes. `instances` is wanted where the refs have no boxes.
    Raises DataError also where one picture is in two splits.
    """
    file = read_refs(refs)
    boxes = None if instances is None else read_json(instances)
    if boxes is None and isinstance(file.value, list):
        file.refuse("refs without boxes", "`instances.json` of the same folder beside them, as a second file")
    images = _images(file if boxes is None else boxes)
    notes = {} if boxes is None else {note["id"].integer(): note for note in boxes["annotations"].each()}
    found: dict[int, list[Expression]] = defaultdict(list)
    splits: dict[int, str] = {}
    once, once_sentence = Once("ref id"), Once("sentence id")
    for ref in (file if isinstance(file.value, list) else file["refs"]).each():
        once.check(ref["ref_id"].integer(), ref)
        number = ref["image_id"].integer()
        if number not in images:
            ref["image_id"].refuse(f"the image id {number}", "one that `images` has")
        own = _split(ref, images[number], split)
        if isinstance(split, str) and own != split:
            continue
        if splits.setdefault(number, own) != own:
            ref.refuse(
                f"a ref of {own!r} on a picture with refs of {splits[number]!r}",
                "a picture in one split, as in all of RefCOCO but the google split of RefCOCOg (its umd split is so)",
            )
        box = _box(ref, notes, boxes).corners(images[number]["width"].size(), images[number]["height"].size())
        for sentence in ref["sentences"].items():
            once_sentence.check(sentence["sent_id"].integer(), sentence)
            found[number].append(Expression(str(sentence["sent_id"].integer()), sentence["sent"].text(), box))
    return [_record(images[number], splits[number], expressions, pictures) for number, expressions in found.items()]


def _record(image: Entry, split: str, expressions: Sequence[Expression], pictures: Path | Pictures | None) -> Record:
    name, size = image["file_name"].text(), (image["width"].size(), image["height"].size())
    return Record(key_of_name(name), split, picture_at(pictures, name, image), size, expressions=tuple(expressions))


def _split(ref: Entry, image: Entry, split: str | Callable[[str], str]) -> str:
    """Its own where it names one."""
    if (named := ref.get("split")) is not None:
        return named.text()
    return split if isinstance(split, str) else split(key_of_name(image["file_name"].text()))


def read_refs(refs: Path | Entry) -> Entry:
    """The refs of a file as they lie there: JSON, or the official pickle."""
    if isinstance(refs, Entry) or refs.suffix.lower() not in (".p", ".pkl", ".pickle"):
        return read_json(refs)
    return Entry(unpickle.load(refs), refs.name)


def _images(file: Entry) -> dict[int, Entry]:
    once = Once("image id")
    images = {}
    for image in file["images"].each():
        once.check(image["id"].integer(), image)
        images[image["id"].integer()] = image
    return images


def _box(ref: Entry, notes: dict[int, Entry], boxes: Entry | None) -> Entry:
    if boxes is None:
        return ref["bbox"]
    if ref["ann_id"].integer() not in notes:
        ref["ann_id"].refuse(f"the annotation id {ref['ann_id'].value}", f"one that {boxes.where} has")
    return notes[ref["ann_id"].integer()]["bbox"]
