"""RefCOCO, RefCOCO+, RefCOCOg (github.com/lichengunc/refer): the official two files, or one JSON of our own.

The official `refs(unc).p` is a pickle; it is read by a reader of plain values that runs nothing (`runtime.unpickle`).
Its boxes stand in `instances.json` beside it, a COCO file. The same list as JSON is read too, and

    {"images": [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}],
     "refs": [{"ref_id": 1, "image_id": 7, "bbox": [left, top, width, height],
               "category": "dog", "sentences": [{"sent_id": 3, "sent": "the small dog"}]}]}

with boxes in pixels, as in COCO.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Expression, Record
from diptych.data.formats.coco import CocoImage, images_by_id
from diptych.data.formats.parsing import Once, Pictures, key_of_name, picture_at, read_json
from diptych.data.formats.values import Corners, JsonValue, Text, box_of
from diptych.runtime import unpickle


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


def read(
    refs: Path | JsonValue,
    pictures: Path | Pictures | None = None,
    split: str | Callable[[str], str] = "train",
    instances: Path | JsonValue | None = None,
) -> list[Record]:
    """One record a picture that has expressions, its key the picture's name.

    Of refs that name their split only those of `split` are read; where that makes a split of a picture's name, each
    keeps its own, and those that name none get what it makes. `instances` is wanted where the refs have no boxes.
    Raises DataError also where one picture is in two splits.
    """
    file = read_refs(refs)
    if instances is None and isinstance(file.value, list):
        file.refuse("refs without boxes", "`instances.json` of the same folder beside them, as a second file")
    boxes: dict[int, Corners] = {}
    with_images = file if instances is None else read_json(instances)
    if instances is not None:
        boxes = {note.id: note.bbox for note in with_images.read(_RefInstances).annotations}
    images, places = images_by_id(with_images.read(_RefImages).images, with_images)
    if not isinstance(file.value, list):
        file.read(_WithRefs)
        file = file.inner("refs")
    found: dict[int, list[Expression]] = defaultdict(list)
    splits: dict[int, str] = {}
    once, once_sentence = Once("ref id"), Once("sentence id")
    listed: Sequence[_BoxedRef | _OfficialRef]
    listed = file.read(list[_BoxedRef]) if instances is None else file.read(list[_OfficialRef])
    for at, ref in enumerate(listed):
        once.check(ref.ref_id, file.where(f"[{at}]"))
        if ref.image_id not in images:
            file.refuse(f"the image id {ref.image_id}", "one that `images` has", f"[{at}].image_id")
        image = images[ref.image_id]
        own = ref.split
        if own is UNSET:
            own = split if isinstance(split, str) else split(key_of_name(image.file_name))
        if isinstance(split, str) and own != split:
            continue
        if splits.setdefault(image.id, own) != own:
            file.refuse(
                f"a ref of {own!r} on a picture with refs of {splits[image.id]!r}",
                "a picture in one split, as in all of RefCOCO but the google split of RefCOCOg (its umd split is so)",
                f"[{at}]",
            )
        if isinstance(ref, _BoxedRef):
            corners = ref.bbox
        elif ref.ann_id in boxes:
            corners = boxes[ref.ann_id]
        else:
            wanted = f"one that {with_images.where()} has"
            file.refuse(f"the annotation id {ref.ann_id}", wanted, f"[{at}].ann_id")
        box = box_of(corners, image.width, image.height, file.where(f"[{at}].bbox"))
        for place, sentence in enumerate(ref.sentences):
            once_sentence.check(sentence.sent_id, file.where(f"[{at}].sentences[{place}]"))
            found[image.id].append(Expression(str(sentence.sent_id), sentence.sent, box))
    return [_record(images[number], splits[number], said, pictures, places) for number, said in found.items()]


def _record(
    image: CocoImage, split: str, said: list[Expression], pictures: Path | Pictures | None, places: dict[int, str]
) -> Record:
    picture = picture_at(pictures, image.file_name, places[image.id])
    size = (image.width, image.height)
    return Record(key_of_name(image.file_name), split, picture, size, expressions=tuple(said))


def read_refs(refs: Path | JsonValue) -> JsonValue:
    """The refs of a file as they lie there: JSON, or the official pickle."""
    if isinstance(refs, JsonValue) or refs.suffix.lower() not in (".p", ".pkl", ".pickle"):
        return read_json(refs)
    return JsonValue(unpickle.load(refs), refs.name)
