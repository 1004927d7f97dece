"""Karpathy's splits of COCO, Flickr30k, Flickr8k: dataset_coco.json (cs.stanford.edu/people/karpathy/deepimagesent)."""

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, key_of_name
from diptych.data.formats.values import Text, Words

SPLITS = {"restval": "train"}  # the rest of COCO's validation set, which is commonly trained on


class _Sentence(Struct):
    raw: Words


class _KarpathyImage(Struct):
    filename: Text
    sentences: list[_Sentence]
    split: Text
    filepath: Text | UnsetType = UNSET


class _KarpathyFile(Struct):
    images: list[_KarpathyImage]


def read(wanted: Wanted, file: Source) -> list[Record]:
    """Read one record an image, with its captions and its own split; `restval` becomes `train`.

    An image of COCO is in its `filepath`, such as val2014; the key is its name without that. Empty captions are counted
    in `wanted.skips`.
    """
    once, records, value = Once("file name"), [], file.json
    for at, image in enumerate(value.read(_KarpathyFile).images):
        name, where = image.filename, value.where(f"images[{at}]")
        once.check(name, where)
        captions = wanted.skips.filled(
            [one.raw.strip() for one in image.sentences], "empty captions", f"{where}.sentences"
        )
        path = name if image.filepath is UNSET else f"{image.filepath}/{name}"
        split = SPLITS.get(image.split, image.split)
        records.append(wanted.record(path, where, key=key_of_name(name), split=split, captions=captions))
    return records
