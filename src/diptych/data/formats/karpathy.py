"""Read Karpathy's splits of COCO, Flickr30k and Flickr8k (cs.stanford.edu/people/karpathy/deepimagesent)."""

from collections import Counter
from typing import Any
from unicodedata import normalize

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, image_id_of, key_of_name
from diptych.data.formats.splits import JOINED
from diptych.data.formats.values import JsonValue, Text, Words


class _Sentence(Struct):
    raw: Words
    sentid: Any = None


class _KarpathyImage(Struct):
    filename: Text
    sentences: list[Any]
    split: Text
    filepath: Text | UnsetType = UNSET
    cocoid: int | None = None  # the image's id in COCO


def read(wanted: Wanted, file: Source) -> list[Record]:
    """Read one record per image from a file such as `dataset_coco.json`.

    The split `restval` becomes `train`. An image of COCO is in the folder that `filepath` names, such as val2014. The
    key leaves this folder out if no other image has the same name. Empty captions are counted in `wanted.skips` and
    left out.
    """
    once = Once("file name")
    (listed,) = file.json.lists("images")
    every = {_keys(wanted, one, listed.where()) for one in listed.value if isinstance(one, dict)}
    keys = Counter(key for names in every for key in names)

    def take(image: _KarpathyImage, value: JsonValue) -> Record:
        where = value.where()
        path = (names := _keys(wanted, value.value, where))[-1]
        with once.of(path, where):
            captions = wanted.skips.captions(
                value.inner("sentences"), _Sentence, lambda one: (one.raw.strip(), one.sentid), "empty captions"
            )
            key = next((one for one in names if keys[one] == 1), path)
            split, image_id = JOINED.get(image.split, image.split), image_id_of(image.filename, image.cocoid)
            return wanted.record(path, where, key=key, split=split, image_id=image_id, **captions)

    return wanted.skips.each(listed, _KarpathyImage, take)


def _keys(wanted: Wanted, image: dict[str, Any], where: str) -> tuple[str, ...]:
    """Return the possible keys of an image, the shortest first. For a/b.jpg, they are b, a/b and a/b.jpg."""
    name, folder = str(image.get("filename")), image.get("filepath")
    path = wanted.name_of(name if folder is None else f"{folder}/{name}", where)
    name = path if folder is None else normalize("NFC", name)
    return tuple(dict.fromkeys((key_of_name(name), key_of_name(path), path)))
