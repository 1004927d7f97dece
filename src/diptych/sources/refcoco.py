"""Referring expressions in a JSON form of our own.

The official `refs(unc).p` is a pickle, which can run code when it is read, so it is not read here. Export
it once where you trust it to

    {"images": [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}],
     "refs": [{"ref_id": 1, "image_id": 7, "bbox": [left, top, width, height],
               "category": "dog", "sentences": [{"sent_id": 3, "sent": "the small dog"}]}]}

with boxes in pixels, as in COCO; a ref may have a `split`, and then only those of the split asked for are read.
"""

from collections import defaultdict
from pathlib import Path

from diptych.core import Expression, Record
from diptych.sources.parsing import Once, key_of, picture_at, read_json


def read(refs: Path, pictures: Path | None = None, split: str = "train") -> list[Record]:
    """One record a picture that has expressions."""
    file = read_json(refs)
    once = Once("image id")
    images = {}
    for image in file["images"].items():
        once.check(image["id"].integer(), image.where)
        images[image["id"].integer()] = image
    once_ref, once_sentence = Once("ref id"), Once("sentence id")
    found: dict[int, list[Expression]] = defaultdict(list)
    for ref in file["refs"].items():
        once_ref.check(ref["ref_id"].integer(), ref.where)
        own = ref.get("split")
        if own is not None and own.text() != split:
            continue
        number = ref["image_id"].integer()
        if number not in images:
            ref["image_id"].refuse(f"the image id {number}", "one that `images` has")
        box = ref["bbox"].corners(images[number]["width"].size(), images[number]["height"].size())
        for sentence in ref["sentences"].items():
            once_sentence.check(sentence["sent_id"].integer(), sentence.where)
            found[number].append(Expression(str(sentence["sent_id"].integer()), sentence["sent"].text(), box))
    return [
        Record(
            key_of(split, number),
            split,
            picture_at(pictures, images[number]["file_name"].text(), images[number].where),
            (images[number]["width"].size(), images[number]["height"].size()),
            expressions=tuple(expressions),
        )
        for number, expressions in found.items()
    ]
