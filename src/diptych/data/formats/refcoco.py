"""Read RefCOCO, RefCOCO+ and RefCOCOg (github.com/lichengunc/refer): the two official files, or one JSON file.

The official `refs(unc).p` is a pickle; `runtime.unpickle` reads only plain values and runs no code. The boxes are in
`instances.json` of the same folder, a COCO file. The list of refs may also be JSON. A single JSON file with boxes has
this form:

    {"images": [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}],
     "refs": [{"ref_id": 1, "image_id": 7, "bbox": [left, top, width, height],
               "category": "dog", "sentences": [{"sent_id": 3, "sent": "the small dog"}]}]}

Its boxes are in pixels, as in COCO.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Expression, Record
from diptych.data.formats.coco import CROWDS, CocoImage, CocoImages
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once, image_id_of
from diptych.data.formats.values import Box, Corners, JsonValue, Text
from diptych.runtime import unpickle

PICKLES = (".p", ".pkl", ".pickle")


class _RefSentence(Struct):
    sent_id: int
    sent: Text


class _Ref(Struct, kw_only=True):
    ref_id: int
    image_id: int
    sentences: list[Any]
    split: Text | UnsetType = UNSET


class _BoxedRef(_Ref, kw_only=True):
    bbox: Corners
    iscrowd: Literal[0, 1] = 0


class _OfficialRef(_Ref, kw_only=True):
    ann_id: int


class _RefBox(Struct):
    id: int
    bbox: Corners
    image_id: int | UnsetType = UNSET
    iscrowd: Literal[0, 1] = 0


def read(wanted: Wanted, refs: Source, instances: Source | None = None) -> list[Record]:
    """Read one record for each image that has expressions.

    The split is the split that the image's refs name, else `wanted.split`. `instances` is required if the refs have no
    boxes. Raises DataError for an image in two splits.
    """
    pickled = refs.path.suffix.lower() in PICKLES
    file = JsonValue(unpickle.load(refs.path), refs.path.name) if pickled else refs.json
    if instances is None and isinstance(file.value, list):
        file.refuse("refs without boxes", "a second file, `instances.json` of the same folder")
    with_images = file if instances is None else instances.json
    boxes: dict[int, _RefBox] = {}
    if instances is not None:
        (notes,) = with_images.lists("annotations")
        once = Once("annotation id")

        def box(note: _RefBox, value: JsonValue) -> None:
            once.check(note.id, value.where())
            boxes[note.id] = note

        wanted.skips.each(notes, _RefBox, box)
    images = CocoImages(with_images.lists("images")[0], wanted)
    if not isinstance(file.value, list):
        (file,) = file.lists("refs")
    by_image = _Expressions(wanted, images, boxes, with_images.where())
    kind: Any = _BoxedRef if instances is None else _OfficialRef
    wanted.skips.each(file, kind, by_image.take)
    return by_image.records()


class _Expressions:
    """Collects the expressions of refs for each image, and the split of each image."""

    def __init__(self, wanted: Wanted, images: CocoImages, boxes: Mapping[int, _RefBox], boxes_at: str) -> None:
        self._wanted, self._images, self._boxes, self._boxes_at = wanted, images, boxes, boxes_at
        self._by_image, self._splits = ByImage[Expression](), dict[int, str]()
        self._mixed: tuple[JsonValue, str] | None = None
        self._once, self._once_sentence = Once("ref id"), Once("sentence id")

    def take(self, ref: _BoxedRef | _OfficialRef, value: JsonValue) -> None:
        with self._once.of(ref.ref_id, value.where()):
            if (image := self._images.of(ref.image_id, value)) is None:
                return
            if ref.split is not UNSET:
                self._check_split(image.id, ref.split, value)
            if isinstance(ref, _BoxedRef):
                corners, is_crowd = ref.bbox, ref.iscrowd
            elif ref.ann_id in self._boxes:
                if (owner := self._boxes[ref.ann_id].image_id) not in (UNSET, ref.image_id):
                    value.refuse(f"an annotation of the image {owner}", f"one of the image {ref.image_id}", "ann_id")
                corners, is_crowd = self._boxes[ref.ann_id].bbox, self._boxes[ref.ann_id].iscrowd
            else:
                value.refuse(f"the annotation id {ref.ann_id}", f"one that {self._boxes_at} has", "ann_id")
            if is_crowd and not self._wanted.crowds:
                self._wanted.skips.add(CROWDS, value.where())
                return
            self._add(image, image.box(corners, value.where("bbox"), self._wanted.skips), value.inner("sentences"))

    def _check_split(self, number: int, split: str, value: JsonValue) -> None:
        """Store the first ref whose image is also in another split.

        `records` then raises an error for the whole file, instead of skipping this ref.
        """
        if (earlier := self._splits.setdefault(number, split)) != split and self._mixed is None:
            self._mixed = value, f"a ref of split {split!r} on an image with refs of {earlier!r}"

    def _add(self, image: CocoImage, box: Box, sentences: JsonValue) -> None:
        def take(sentence: _RefSentence, value: JsonValue) -> None:
            self._once_sentence.check(sentence.sent_id, value.where())
            expression = Expression(str(sentence.sent_id), sentence.sent, box)
            self._by_image.add(image.id, expression, self._images.places[image.id])

        self._wanted.skips.each(sentences, _RefSentence, take)

    def records(self) -> list[Record]:
        if self._mixed is not None:
            one_split = "one split for each image; for RefCOCOg, use the umd splits instead of the google split"
            self._mixed[0].refuse(self._mixed[1], one_split)

        def record(number: int, items: tuple[Expression, ...], where: str) -> Record:
            image, split = self._images.by_id[number], self._splits.get(number)
            image_id = image_id_of(image.file_name, number)
            own: dict[str, Any] = {"size": image.size, "image_id": image_id, "expressions": items}
            return self._wanted.record(image.file_name, where, split=split, **own)

        return self._by_image.records(self._wanted, record)
