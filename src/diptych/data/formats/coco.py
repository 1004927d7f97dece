"""Read COCO captions and instances (cocodataset.org/#format-data)."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from diptych.core import Object, Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, Skips, image_id_of, key_of_name, named_captions
from diptych.data.formats.values import Box, Corners, JsonValue, Number, Side, Text, Words, box_of, refuse, text_of_id

LEFT = "annotations of images that were left out"
CROWDS = "crowds"


class CocoImage(Struct):
    """An entry of the list `images`. Only Storybook writes `relations`: (subject index, relation, object index)."""

    id: int
    file_name: Text
    width: Side | None = None  # a file of captions may lack the images' sizes
    height: Side | None = None
    relations: list[tuple[int, Text, int]] = []
    split: Words | None = None  # present only in some files, such as those with Karpathy's splits

    @property
    def size(self) -> tuple[int, int] | None:
        return None if self.width is None or self.height is None else (self.width, self.height)

    def box(self, corners: Corners, where: str, skips: Skips) -> Box:
        """Convert [left, top, width, height] in pixels to [x1, y1, x2, y2] in fractions of the image."""
        if self.size is None:
            refuse(where, "a box of an image without size", "the image's `width` and `height`")
        return box_of(corners, *self.size, where, skips.add)


class _Caption(Struct):
    image_id: int
    caption: Words
    id: Any = None
    is_rejected: bool = False  # marks of VizWiz-Captions
    is_precanned: bool = False


class _Instance(Struct):
    id: int
    image_id: int
    category_id: int
    bbox: Corners
    attributes: dict[str, Any] = {}  # only text values are read
    visible: Number = 1.0
    iscrowd: Literal[0, 1] = 0


class _Category(Struct):
    id: int
    name: Text


def read_captions(wanted: Wanted, file: Source) -> list[Record]:
    """Read `captions_*.json`: one record per image, in the file's order.

    Captions that are empty, or that VizWiz-Captions marks as rejected or precanned, are counted in `wanted.skips` and
    left out. The key is the image's name without its suffix, as in all readers of data sets with COCO images.
    """
    listed, notes = file.json.lists("images", "annotations")
    images = CocoImages(listed, wanted)
    captions: dict[int, list[tuple[str, Any]]] = {number: [] for number in images.by_id}
    ids = set[Any]()

    def take(note: _Caption, value: JsonValue) -> None:
        if (image := images.of(note.image_id, value)) is None:
            return
        if note.is_rejected or note.is_precanned:
            wanted.skips.add("captions marked as rejected or precanned", value.where())
        elif words := note.caption.strip():
            captions[image.id].append((words, note.id))
            if (number := text_of_id(note.id)) is not None and number in ids:
                wanted.skips.add("caption ids that occur twice (both captions are kept)", value.where("id"))
            ids.add(number)
        else:
            wanted.skips.add("empty captions", value.where())

    wanted.skips.each(notes, _Caption, take)
    return images.records(_near(wanted, file, images), lambda one: named_captions(captions[one.id]))


def read_instances(wanted: Wanted, file: Source) -> list[Record]:
    """Read `instances_*.json`: one record per image, in the file's order. Boxes become fractions of the image.

    Annotations with `iscrowd` 1 are counted in `wanted.skips` and left out, unless `wanted.crowds` is True.
    """
    listed, notes, categories = file.json.lists("images", "annotations", "categories")
    skips, once, kinds = wanted.skips, Once("annotation id"), dict[int, str]()
    images = CocoImages(listed, wanted)

    def name(kind: _Category, value: JsonValue) -> None:
        if (earlier := kinds.setdefault(kind.id, kind.name)) != kind.name:
            value.refuse(f"{kind.id} for {kind.name!r}", f"an id that {earlier!r} does not have", "id")

    skips.each(categories, _Category, name)
    objects: dict[int, list[Object]] = {number: [] for number in images.by_id}

    def take(note: _Instance, value: JsonValue) -> None:
        with once.of(note.id, value.where()):
            if (image := images.of(note.image_id, value)) is None:
                return
            if note.category_id not in kinds:
                value.refuse(f"the category {note.category_id}", "an id in `categories`", "category_id")
            if note.iscrowd and not wanted.crowds:
                skips.add(CROWDS, value.where())
                return
            box = image.box(note.bbox, value.where("bbox"), skips)
            texts = {name: one for name, one in note.attributes.items() if isinstance(one, str) and text_of_id(one)}
            objects[image.id].append(Object(kinds[note.category_id], box, texts, note.visible))

    def fields(image: CocoImage) -> dict[str, Any]:
        things, relations = tuple(objects[image.id]), tuple(image.relations)
        if relations and len(things) < annotated[str(image.id)]:
            skips.add("relations of images with objects that were left out", images.places[image.id], len(relations))
            relations = ()  # their indices count left-out objects too, and would point to wrong ones
        for at, (subject, _, other) in enumerate(relations):
            if wrong := [end for end in (subject, other) if not 0 <= end < len(things)]:
                where = f"{images.places[image.id]}.relations[{at}]"
                refuse(where, f"object {wrong[0]}", f"one of the image's {len(things)} objects")
        return {"objects": things, "relations": relations}

    skips.each(notes, _Instance, take)
    annotated = Counter(str(note.get("image_id")) for note in notes.value if isinstance(note, dict))
    return images.records(_near(wanted, file, images), fields)


class CocoImages:
    """The images of a COCO file by id, and the location of each in the file. Repeated ids and names are skipped."""

    def __init__(self, listed: JsonValue, wanted: Wanted) -> None:
        self.by_id: dict[int, CocoImage] = {}
        self.places: dict[int, str] = {}
        self._skips, once, once_name = wanted.skips, Once("image id"), Once("file name")

        def take(image: CocoImage, value: JsonValue) -> None:
            with once.of(image.id, where := value.where()):
                image.file_name = wanted.name_of(image.file_name, where)
                once_name.check(image.file_name, where)
            self.by_id[image.id], self.places[image.id] = image, where

        self._skips.each(listed, CocoImage, take)
        ids = [one.get("id") if isinstance(one, dict) else None for one in listed.value]
        self._left_out = {number for number in ids if isinstance(number, int)} - self.by_id.keys()
        self._nameless = not all(isinstance(number, int) for number in ids)

    def of(self, number: int, note: JsonValue) -> CocoImage | None:
        """Return the image with the id `number`.

        If the image was left out, count the annotation `note` and return None.
        """
        if number in self._left_out or (self._nameless and number not in self.by_id):
            self._skips.add(LEFT, note.where())
        elif number not in self.by_id:
            note.refuse(f"the image id {number}", "an id in `images`", "image_id")
        return self.by_id.get(number)

    def records(self, wanted: Wanted, fields: Callable[[CocoImage], dict[str, Any]]) -> list[Record]:
        keys = Counter(key_of_name(image.file_name) for image in self.by_id.values())

        def record(image: CocoImage) -> Record:
            own: dict[str, Any] = {"size": image.size, "image_id": image_id_of(image.file_name, image.id)}
            # The names a.jpg and a.png give the same key.
            key = image.file_name if keys[key_of_name(image.file_name)] > 1 else None
            where = self.places[image.id]
            split = wanted.splits.of_entry(image.split, where)
            return wanted.record(image.file_name, where, key=key, split=split, **own, **fields(image))

        return wanted.records(self.by_id.values(), record)


def _near(wanted: Wanted, file: Source, images: CocoImages) -> Wanted:
    """Find the folder of the images.

    For `captions_val2017.json`, this may be a folder `val2017` in the expected folder or next to it.
    """
    folder, name = wanted.pictures, file.path.stem.rpartition("_")[2]
    first = next((image.file_name for image in images.by_id.values()), None)
    if not isinstance(folder, Path) or first is None or os.path.isfile(folder / first):
        return wanted
    near = (one for one in (folder / name, folder.parent / name) if os.path.isfile(one / first))
    return replace(wanted, pictures=next(near, folder))
