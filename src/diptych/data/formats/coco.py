"""COCO captions and instances (cocodataset.org/#format-data)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from diptych.core import Object, Record
from diptych.data.formats.parsing import Entry, Once, Pictures, Skips, key_of_name, picture_at, read_json
from diptych.runtime.errors import DataError


def read(
    captions: Path | Entry | None = None,
    instances: Path | Entry | None = None,
    pictures: Path | Pictures | None = None,
    split: str | Callable[[str], str] = "train",
    skips: Skips | None = None,
) -> list[Record]:
    """One record a picture of `captions_*.json`, `instances_*.json` or both, in the file's order.

    Boxes become fractions of the picture. Of our own, and left out by others: `attributes` and `visible` of
    an annotation, `relations` of a picture. With `pictures`, each must be there. Empty captions are passed over.
    A key is the picture's name without its ending, as in all readers of sets whose pictures are COCO's; `split` may be
    what makes one of that.
    """
    if captions is None and instances is None:
        raise DataError("found neither captions nor instances, wanted at least one file; give its path")
    words = None if captions is None else read_json(captions)
    boxes = None if instances is None else read_json(instances)
    images: dict[int, Entry] = {}
    for file in (file for file in (words, boxes) if file is not None):
        once = Once("image id")
        for image in file["images"].each():
            number = image.integer_of("id")
            once.check(number, image)
            if boxes is file or number not in images:  # only the one with boxes may have relations
                images[number] = image
    by_image = _captions(words, images, Skips() if skips is None else skips)
    objects = _things(boxes, images)
    records, once = [], Once("file name")
    split_of = split if callable(split) else lambda _: split
    for number, image in images.items():
        name = image.text_of("file_name")
        once.check(name, image)
        picture = picture_at(pictures, name, image)
        size = (image["width"].size(), image["height"].size())
        relations = tuple(_relation(entry, len(objects[number])) for entry in _optional(image, "relations"))
        records.append(
            Record(key_of_name(name), split_of(key_of_name(name)), picture, size, captions=tuple(by_image[number]),
                   objects=tuple(objects[number]), relations=relations)
        )  # fmt: skip
    return records


def _optional(entry: Entry, name: str) -> list[Entry]:
    value = entry.get(name)
    return [] if value is None else value.items()


def _captions(file: Entry | None, images: dict[int, Entry], skips: Skips) -> dict[int, list[str]]:
    by_image: dict[int, list[str]] = defaultdict(list)
    for note in [] if file is None else file["annotations"].each():
        number = _known(note, images)
        if words := note.words_of("caption"):
            by_image[number].append(words)
        else:
            skips.add("empty captions", note.where)
    return by_image


def _known(note: Entry, images: dict[int, Entry]) -> int:
    """The image id of an annotation, which `images` must have."""
    number = note.integer_of("image_id")
    if number not in images:
        note["image_id"].refuse(f"the image id {number}", "one that `images` has")
    return number


def _things(file: Entry | None, images: dict[int, Entry]) -> dict[int, list[Object]]:
    objects: dict[int, list[Object]] = defaultdict(list)
    if file is None:
        return objects
    kinds = {kind["id"].integer(): kind["name"].text() for kind in file["categories"].items()}
    once = Once("annotation id")
    for note in file["annotations"].each():
        once.check(note.integer_of("id"), note)
        image = images[_known(note, images)]
        kind = note.integer_of("category_id")
        if kind not in kinds:
            note["category_id"].refuse(f"the category {kind}", "one that `categories` has")
        box = note["bbox"].corners(image["width"].size(), image["height"].size())
        objects[note.integer_of("image_id")].append(Object(kinds[kind], box, *_own(note)))
    return objects


def _own(note: Entry) -> tuple[dict[str, str], float]:
    """The attributes and the visible share, where the file has them."""
    own, visible = note.get("attributes"), note.get("visible")
    attributes = {} if own is None else {name: own[name].text() for name in own.names()}
    return attributes, 1.0 if visible is None else visible.number()


def _relation(entry: Entry, count: int) -> tuple[int, str, int]:
    subject, relation, other = entry.items(3)
    for end in (subject, other):
        if not 0 <= end.integer() < count:
            end.refuse(f"thing {end.value}", f"one of the picture's {count}")
    return subject.integer(), relation.text(), other.integer()
