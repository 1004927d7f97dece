"""Karpathy's splits of COCO, Flickr30k, Flickr8k: dataset_coco.json (cs.stanford.edu/people/karpathy/deepimagesent)."""

from collections import Counter
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, image_id_of, key_of_name
from diptych.data.formats.values import JsonValue, Text, Words

SPLITS = {"restval": "train"}  # the rest of COCO's validation set, which is commonly trained on


class _Sentence(Struct):
    raw: Words
    sentid: Any = None


class _KarpathyImage(Struct):
    filename: Text
    sentences: list[Any]
    split: Text
    filepath: Text | UnsetType = UNSET
    cocoid: int | None = None  # COCO's own number


def read(wanted: Wanted, file: Source) -> list[Record]:
    """Read one record per image, with its captions and its own split; `restval` becomes `train`.

    An image of COCO is in its `filepath`, such as val2014; the key is its name without that, where no
    image of another folder has the same name. Empty captions are counted
    in `wanted.skips`.
    """
    once, names = Once("file name"), Counter[str]()
    (listed,) = file.json.lists("images")
    names.update(str(one.get("filename")) for one in listed.value if isinstance(one, dict))

    def take(image: _KarpathyImage, value: JsonValue) -> Record:
        where = value.where()
        path = image.filename if image.filepath is UNSET else f"{image.filepath}/{image.filename}"
        with once.of(path, where):
            captions = wanted.skips.captions(
                value.inner("sentences"), _Sentence, lambda one: (one.raw.strip(), one.sentid), "empty captions"
            )
            key = key_of_name(path if names[image.filename] > 1 else image.filename)
            split, image_id = SPLITS.get(image.split, image.split), image_id_of(image.filename, image.cocoid)
            return wanted.record(path, where, key=key, split=split, image_id=image_id, **captions)

    return wanted.skips.each(listed, _KarpathyImage, take)
