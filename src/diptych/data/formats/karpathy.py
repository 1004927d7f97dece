"""Karpathy's splits of COCO, Flickr30k, Flickr8k: dataset_coco.json (cs.stanford.edu/people/karpathy/deepimagesent)."""

from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record
from diptych.data.formats.parsing import Once, Pictures, Skips, key_of_name, picture_at, read_json
from diptych.data.formats.values import JsonValue, Text, Words

SPLITS = {"restval": "train"}  # what was left of COCO's validation set, which all train on


class _Sentence(Struct):
    raw: Words


class _KarpathyImage(Struct):
    filename: Text
    sentences: list[_Sentence]
    split: Text
    filepath: Text | UnsetType = UNSET


class _KarpathyFile(Struct):
    images: list[_KarpathyImage]


def read(file: Path | JsonValue, pictures: Path | Pictures | None = None, skips: Skips | None = None) -> list[Record]:
    """One record a picture with its captions and its own split; `restval` is `train`.

    Of COCO a picture lies in its `filepath`, such as val2014; its key is its name without that.
    """
    skips = Skips() if skips is None else skips
    once, records, value = Once("file name"), [], read_json(file)
    for at, image in enumerate(value.read(_KarpathyFile).images):
        name, where = image.filename, value.where(f"images[{at}]")
        once.check(name, where)
        captions = tuple(words for sentence in image.sentences if (words := sentence.raw.strip()))
        for place, sentence in enumerate(image.sentences):
            if not sentence.raw.strip():
                skips.add("empty captions", f"{where}.sentences[{place}]")
        picture = picture_at(pictures, name if image.filepath is UNSET else f"{image.filepath}/{name}", where)
        split = SPLITS.get(image.split, image.split)
        records.append(Record(key_of_name(name), split, picture, captions=captions))
    return records
