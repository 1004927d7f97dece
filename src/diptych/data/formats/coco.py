"""COCO captions and instances (cocodataset.org/#format-data)."""

from collections import defaultdict

from msgspec import Struct

from diptych.core import Object, Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, Skips
from diptych.data.formats.values import Corners, JsonValue, Number, Side, Text, Words, box_of, refuse
from diptych.runtime.errors import DataError


class CocoImage(Struct):
    """An entry of `images`; `relations` (subject, relation, object) are Storybook's."""

    id: int
    file_name: Text
    width: Side
    height: Side
    relations: list[tuple[int, Text, int]] = []

    @property
    def size(self) -> tuple[int, int]:
        return self.width, self.height


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
    attributes: dict[str, Text] = {}  # Storybook's, as `visible`
    visible: Number = 1.0


class _Category(Struct):
    id: int
    name: Text


class _Instances(Struct):
    images: list[CocoImage]
    annotations: list[_Instance]
    categories: list[_Category]


def read(wanted: Wanted, captions: Source | None = None, instances: Source | None = None) -> list[Record]:
    """Read `captions_*.json`, `instances_*.json` or both: one record an image, in the file's order.

    Boxes become fractions of the image. Empty captions are counted in `wanted.skips`. A key is the image's name without
    its ending, as in all readers of sets with COCO's images.
    """
    if captions is None and instances is None:
        raise DataError("found neither captions nor instances, wanted at least one file; give its path")
    words: dict[int, list[str]] = {}
    objects: dict[int, list[Object]] = {}
    images: dict[int, CocoImage] = {}
    places: dict[int, str] = {}
    if captions is not None:
        noted = captions.json.read(_Captions)
        images, places = images_by_id(noted.images, captions.json)
        words = _captions(noted.annotations, images, captions.json, wanted.skips)
    if instances is not None:  # second, since only this file may have relations
        content = instances.json.read(_Instances)
        with_boxes, where = images_by_id(content.images, instances.json)
        images, places = images | with_boxes, places | where
        objects = _objects(content, images, instances.json)
    records, once = [], Once("file name")
    for number, image in images.items():
        where_image, things = places[number], tuple(objects.get(number, ()))
        once.check(image.file_name, where_image)
        for at, (subject, _, other) in enumerate(image.relations):
            if wrong := [end for end in (subject, other) if not 0 <= end < len(things)]:
                refuse(f"{where_image}.relations[{at}]", f"thing {wrong[0]}", f"one of the picture's {len(things)}")
        relations, texts = tuple(image.relations), tuple(words.get(number, ()))
        records.append(
            wanted.record(
                image.file_name, where_image, size=image.size, captions=texts, objects=things, relations=relations
            )
        )
    return records


def images_by_id(images: list[CocoImage], file: JsonValue) -> tuple[dict[int, CocoImage], dict[int, str]]:
    """Return the images and their places in the file, by id. Raises DataError for an id that occurs twice."""
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


def _objects(content: _Instances, images: dict[int, CocoImage], file: JsonValue) -> dict[int, list[Object]]:
    objects: dict[int, list[Object]] = defaultdict(list)
    kinds = {kind.id: kind.name for kind in content.categories}
    once = Once("annotation id")
    for at, note in enumerate(content.annotations):
        where = file.where(f"annotations[{at}]")
        once.check(note.id, where)
        if note.image_id not in images:
            refuse(f"{where}.image_id", f"the image id {note.image_id}", "one that `images` has")
        if note.category_id not in kinds:
            refuse(f"{where}.category_id", f"the category {note.category_id}", "one that `categories` has")
        box = box_of(note.bbox, *images[note.image_id].size, f"{where}.bbox")
        objects[note.image_id].append(Object(kinds[note.category_id], box, note.attributes, note.visible))
    return objects
