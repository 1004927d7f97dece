"""RefCOCO, RefCOCO+, RefCOCOg (github.com/lichengunc/refer): the official two files, or one JSON file of our own.

The official `refs(unc).p` is a pickle; `runtime.unpickle` reads its plain values and runs nothing. Its boxes are in
`instances.json` of the same folder, a COCO file. The same list as JSON is read too, and

    {"images": [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}],
     "refs": [{"ref_id": 1, "image_id": 7, "bbox": [left, top, width, height],
               "category": "dog", "sentences": [{"sent_id": 3, "sent": "the small dog"}]}]}

with boxes in pixels, as in COCO.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Expression, Record
from diptych.data.formats.coco import CocoImage, images_by_id
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once, key_of_name
from diptych.data.formats.values import Corners, JsonValue, Text, box_of
from diptych.runtime import unpickle

PICKLES = (".p", ".pkl", ".pickle")


class _RefSentence(Struct):
    sent_id: int
    sent: Text


class _Ref(Struct, kw_only=True):
    ref_id: int
    image_id: int
    sentences: list[_RefSentence]
    split: Text | UnsetType = UNSET


class _BoxedRef(_Ref, kw_only=True):
    bbox: Corners


class _OfficialRef(_Ref, kw_only=True):
    ann_id: int


class _RefImages(Struct):
    images: list[CocoImage]


class _RefBox(Struct):
    id: int
    bbox: Corners


class _RefInstances(_RefImages):
    annotations: list[_RefBox]


class _WithRefs(Struct):
    refs: list[Any]


def read(wanted: Wanted, refs: Source, instances: Source | None = None) -> list[Record]:
    """Read one record for each image that has expressions.

    Refs that name their split keep it. `instances` is needed where the refs have no boxes. Raises DataError also where
    one image is in two splits.
    """
    pickled = refs.path.suffix.lower() in PICKLES
    file = JsonValue(unpickle.load(refs.path), refs.path.name) if pickled else refs.json
    if instances is None and isinstance(file.value, list):
        file.refuse("refs without boxes", "`instances.json` of the same folder too, as a second file")
    with_images = file if instances is None else instances.json
    boxes: dict[int, Corners] = {}
    if instances is not None:
        boxes = {note.id: note.bbox for note in with_images.read(_RefInstances).annotations}
    images, places = images_by_id(with_images.read(_RefImages).images, with_images)
    if not isinstance(file.value, list):
        file.read(_WithRefs)
        file = file.inner("refs")
    by_image, splits = ByImage[Expression](), dict[int, str]()
    once, once_sentence = Once("ref id"), Once("sentence id")
    listed: Sequence[_BoxedRef | _OfficialRef]
    listed = file.read(list[_BoxedRef]) if instances is None else file.read(list[_OfficialRef])
    for at, ref in enumerate(listed):
        once.check(ref.ref_id, file.where(f"[{at}]"))
        if ref.image_id not in images:
            file.refuse(f"the image id {ref.image_id}", "one that `images` has", f"[{at}].image_id")
        image = images[ref.image_id]
        split = wanted.split_of(key_of_name(image.file_name)) if ref.split is UNSET else ref.split
        if splits.setdefault(image.id, split) != split:
            file.refuse(
                f"a ref of {split!r} on a picture with refs of {splits[image.id]!r}",
                "a picture in one split, as in all of RefCOCO but the google split of RefCOCOg (its umd split is so)",
                f"[{at}]",
            )
        if isinstance(ref, _BoxedRef):
            corners = ref.bbox
        elif ref.ann_id in boxes:
            corners = boxes[ref.ann_id]
        else:
            known = f"one that {with_images.where()} has"
            file.refuse(f"the annotation id {ref.ann_id}", known, f"[{at}].ann_id")
        box = box_of(corners, image.width, image.height, file.where(f"[{at}].bbox"))
        for place, sentence in enumerate(ref.sentences):
            once_sentence.check(sentence.sent_id, file.where(f"[{at}].sentences[{place}]"))
            expression = Expression(str(sentence.sent_id), sentence.sent, box)
            by_image.add(image.id, expression, places[image.id])
    return [
        wanted.record(
            images[number].file_name, where, split=splits[number], size=images[number].size, expressions=items
        )
        for number, items, where in by_image
    ]
