"""COCO captions and instances (cocodataset.org/#format-data)."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from diptych.core import Object, Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once
from diptych.data.formats.values import Corners, JsonValue, Number, Side, Text, Words, box_of, refuse


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


def read_captions(wanted: Wanted, file: Source) -> list[Record]:
    """Read `captions_*.json`: one record an image, in the file's order. Empty captions are counted in `wanted.skips`.

    A key is the image's name without its ending, as in all readers of sets with COCO's images.
    """
    content = file.json.read(_Captions)
    wanted = _near(wanted, file, content.images)
    images, places = images_by_id(content.images, file.json)
    captions: dict[int, list[str]] = {number: [] for number in images}
    for at, note in enumerate(content.annotations):
        if note.image_id not in images:
            file.json.refuse(f"the image id {note.image_id}", "one that `images` has", f"annotations[{at}].image_id")
        if words := note.caption.strip():
            captions[note.image_id].append(words)
        else:
            wanted.skips.add("empty captions", file.json.where(f"annotations[{at}]"))
    return [
        wanted.record(image.file_name, places[number], size=image.size, captions=tuple(captions[number]))
        for number, image in images.items()
    ]


def read_instances(wanted: Wanted, file: Source) -> list[Record]:
    """Read `instances_*.json`: one record an image, in the file's order. Boxes become fractions of the image."""
    content = file.json.read(_Instances)
    wanted = _near(wanted, file, content.images)
    images, places = images_by_id(content.images, file.json)
    kinds, once = {kind.id: kind.name for kind in content.categories}, Once("annotation id")
    objects: dict[int, list[Object]] = {number: [] for number in images}
    for at, note in enumerate(content.annotations):
        where = file.json.where(f"annotations[{at}]")
        once.check(note.id, where)
        if note.image_id not in images:
            refuse(f"{where}.image_id", f"the image id {note.image_id}", "one that `images` has")
        if note.category_id not in kinds:
            refuse(f"{where}.category_id", f"the category {note.category_id}", "one that `categories` has")
        box = box_of(note.bbox, *images[note.image_id].size, f"{where}.bbox")
        objects[note.image_id].append(Object(kinds[note.category_id], box, note.attributes, note.visible))
    records = []
    for number, image in images.items():
        things, relations = tuple(objects[number]), tuple(image.relations)
        for at, (subject, _, other) in enumerate(relations):
            if wrong := [end for end in (subject, other) if not 0 <= end < len(things)]:
                refuse(f"{places[number]}.relations[{at}]", f"thing {wrong[0]}", f"one of the picture's {len(things)}")
        fields: dict[str, Any] = {"size": image.size, "objects": things, "relations": relations}
        records.append(wanted.record(image.file_name, places[number], **fields))
    return records


def _near(wanted: Wanted, file: Source, images: list[CocoImage]) -> Wanted:
    """Look for the images of `captions_val2017.json` in `val2017` in or next to the wanted folder if it has none."""
    folder, name = wanted.pictures, file.path.stem.rpartition("_")[2]
    if not isinstance(folder, Path) or not images or os.path.isfile(folder / images[0].file_name):
        return wanted
    near = (one for one in (folder / name, folder.parent / name) if os.path.isfile(one / images[0].file_name))
    return replace(wanted, pictures=next(near, folder))


def images_by_id(images: list[CocoImage], file: JsonValue) -> tuple[dict[int, CocoImage], dict[int, str]]:
    """Return the images and their places in the file, by id. Raises DataError for an id or a name that occurs twice."""
    once, once_name = Once("image id"), Once("file name")
    for at, image in enumerate(images):
        where = file.where(f"images[{at}]")
        once.check(image.id, where)
        once_name.check(image.file_name, where)
    return {image.id: image for image in images}, once.seen
