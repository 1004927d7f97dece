"""Karpathy's splits of COCO, Flickr30k, Flickr8k: dataset_coco.json (cs.stanford.edu/people/karpathy/deepimagesent)."""

from pathlib import Path

from diptych.core import Record
from diptych.data.formats.parsing import Entry, Once, Pictures, Skips, key_of_name, picture_at, read_json

SPLITS = {"restval": "train"}  # what was left of COCO's validation set, which all train on


def read(file: Path | Entry, pictures: Path | Pictures | None = None, skips: Skips | None = None) -> list[Record]:
    """One record a picture with its captions and its own split; `restval` is `train`.

    Of COCO a picture lies in its `filepath`, such as val2014; its key is its name without that.
    """
    skips = Skips() if skips is None else skips
    once, records = Once("file name"), []
    for image in read_json(file)["images"].each():
        name, folder = image["filename"].text(), image.get("filepath")
        once.check(name, image)
        captions = []
        for sentence in image["sentences"].each():
            if sentence.lacks_words("raw"):
                skips.add("empty captions", sentence.where)
            else:
                captions.append(sentence.text_of("raw").strip())
        split = image["split"].text()
        picture = picture_at(pictures, name if folder is None else f"{folder.text()}/{name}", image)
        records.append(Record(key_of_name(name), SPLITS.get(split, split), picture, captions=tuple(captions)))
    return records
