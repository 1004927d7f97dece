"""COCO captions and instances (cocodataset.org/#format-data)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from diptych.core import Object, Record
from diptych.data.formats.parsing import Once, Pictures, Skips, key_of_name, picture_at, read_json
from diptych.data.formats.values import Corners, JsonValue, Number, Side, Text, Words, box_of, refuse
from diptych.runtime.errors import DataError


class CocoImage(Struct):
    id: int
    file_name: Text
    width: Side
    height: Side
    relations: list[tuple[int, Text, int]] = []


class _Caption(Struct):
    image_id: int
    caption: Words


class _Captions(Struct):
    images: list[CocoImage]
    annotations: list[_Caption]


class _Instance(Struct):
    id: int
    image_id: int
    category_id: int
    bbox: Corners
    attributes: dict[str, Text] = {}
    visible: Number = 1.0


class _Category(Struct):
    id: int
    name: Text


class _Instances(Struct):
    images: list[CocoImage]
    annotations: list[_Instance]
    categories: list[_Category]


def read(
    captions: Path | JsonValue | None = None,
    instances: Path | JsonValue | None = None,
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
    words: dict[int, list[str]] = {}
    objects: dict[int, list[Object]] = {}
    images: dict[int, CocoImage] = {}
    places: dict[int, str] = {}
    if captions is not None:
        noted = (file := read_json(captions)).read(_Captions)
        images, places = images_by_id(noted.images, file)
        words = _captions(noted.annotations, images, file, Skips() if skips is None else skips)
    if instances is not None:  # only this file may have relations
        seen = (file := read_json(instances)).read(_Instances)
        with_boxes, where = images_by_id(seen.images, file)
        images, places = images | with_boxes, places | where
        objects = _things(seen, images, file)
    records, once = [], Once("file name")
    for number, image in images.items():
        once.check(image.file_name, places[number])
        key, things = key_of_name(image.file_name), tuple(objects.get(number, ()))
        for at, (subject, _, other) in enumerate(image.relations):
            if amiss := [end for end in (subject, other) if not 0 <= end < len(things)]:
                refuse(f"{places[number]}.relations[{at}]", f"thing {amiss[0]}", f"one of the picture's {len(things)}")
        records.append(
            Record(key, split(key) if callable(split) else split, picture_at(pictures, image.file_name, places[number]),
                   (image.width, image.height), captions=tuple(words.get(number, ())), objects=things,
                   relations=tuple(image.relations))
        )  # fmt: skip
    return records


def images_by_id(images: list[CocoImage], file: JsonValue) -> tuple[dict[int, CocoImage], dict[int, str]]:
    """And where each is."""
    once = Once("image id")
    for at, image in enumerate(images):
        once.check(image.id, file.where(f"images[{at}]"))
    return {image.id: image for image in images}, once.seen


def _captions(
    notes: list[_Caption], images: dict[int, CocoImage], file: JsonValue, skips: Skips
) -> dict[int, list[str]]:
    by_image: dict[int, list[str]] = defaultdict(list)
    for at, note in enumerate(notes):
        if note.image_id not in images:
            file.refuse(f"the image id {note.image_id}", "one that `images` has", f"annotations[{at}].image_id")
        if words := note.caption.strip():
            by_image[note.image_id].append(words)
        else:
            skips.add("empty captions", file.where(f"annotations[{at}]"))
    return by_image


def _things(seen: _Instances, images: dict[int, CocoImage], file: JsonValue) -> dict[int, list[Object]]:
    objects: dict[int, list[Object]] = defaultdict(list)
    kinds = {kind.id: kind.name for kind in seen.categories}
    once = Once("annotation id")
    for at, note in enumerate(seen.annotations):
        where = file.where(f"annotations[{at}]")
        once.check(note.id, where)
        if note.image_id not in images:
            refuse(f"{where}.image_id", f"the image id {note.image_id}", "one that `images` has")
        if note.category_id not in kinds:
            refuse(f"{where}.category_id", f"the category {note.category_id}", "one that `categories` has")
        image = images[note.image_id]
        box = box_of(note.bbox, image.width, image.height, f"{where}.bbox")
        objects[note.image_id].append(Object(kinds[note.category_id], box, note.attributes, note.visible))
    return objects
