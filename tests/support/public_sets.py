"""Public sets as they are downloaded, with a few images."""

# ruff: noqa: E501  a table is read by its columns
from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from diptych.core import Record
from diptych.data.formats.public_set import write_set
from diptych.data.formats.table import read
from tests.support.public_files import (
    ANSWERS,
    IMAGES,
    INSTANCES,
    KARPATHY,
    METADATA,
    NAME,
    OFFICIAL,
    QUESTIONS,
    VCR,
    saved,
)

TRAIN = NAME.replace("val", "train")


NLVR2 = [{"identifier": f"{split}-1-0-{n}", "sentence": f"The left one is {n}", "label": str(n == 0), "synset": "x"} | more
         for split, more in (("train", {"directory": 3}), ("dev", {})) for n in (0, 1)]  # fmt: skip


SNLI = [{"Flickr30K_ID": "9", "pairID": f"9.jpg#{n}", "gold_label": label, "sentence1": "x", "sentence2": f"s {n}"}
        for n, label in enumerate(("entailment", "contradiction", "neutral", "-"))]  # fmt: skip


GQA = {
    "1": {"imageId": "9", "question": "Is it?", "answer": "yes", "isBalanced": True},
    "2": {"imageId": "n1", "question": "Who?", "answer": "2"},
}


XML = """<annotation><filename>9.jpg</filename><size><width>100</width><height>50</height><depth>3</depth></size>
<object><name>1</name><bndbox><xmin>10</xmin><ymin>10</ymin><xmax>30</xmax><ymax>20</ymax></bndbox></object>
<object><name>1</name><name>2</name><bndbox><xmin>20</xmin><ymin>10</ymin><xmax>50</xmax><ymax>40</ymax></bndbox></object>
<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object></annotation>"""


SENTENCE = "[/EN#1/people Two girls] with [/EN#2/clothing a hat] in [/EN#3/scene a park] ."


def lines(values: list[Any]) -> str:
    return "\n".join(map(json.dumps, values))


def picture(size: tuple[int, int] = (100, 50)) -> bytes:
    kept = io.BytesIO()
    Image.new("RGB", size).save(kept, "PNG")
    return kept.getvalue()


def tar(folder: Path, name: str, files: dict[str, bytes]) -> None:
    path = saved(folder, name, b"")
    with tarfile.open(path, "w") as archive:
        for inside, content in files.items():
            member = tarfile.TarInfo(inside)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def web(folder: Path) -> None:
    """As img2dataset leaves it: a picture, its caption, and what is known of both."""
    files = {"000000000.jpg": picture(), "000000000.txt": b"a dog ", "000000000.json": b"{}",
             "000000001.txt": b"lost", "000000002.jpg": picture(), "000000003.png": picture(), "000000003.txt": b" "}  # fmt: skip
    tar(folder, "00000.tar", files)
    tar(folder, "00001.tar", {"000010000.webp": picture((7, 9)), "000010000.txt": "un café".encode()})


def nlvr2(folder: Path) -> None:
    for split, place in (("train", "images/train/3"), ("dev", "images/dev")):
        saved(folder, f"{split}.json", lines([one for one in NLVR2 if one["identifier"].startswith(split)]))
        saved(folder, f"{place}/{split}-1-0-img0.png", picture((40, 20)))
        saved(folder, f"{place}/{split}-1-0-img1.png", picture((30, 10)))


def entities(folder: Path) -> None:
    saved(folder, "Sentences/9.txt", SENTENCE)
    saved(folder, "Annotations/9.xml", XML)
    saved(folder, "train.txt", "9\n")
    saved(folder, "flickr30k-images/9.jpg", picture())


def vcr(folder: Path) -> None:
    saved(folder, "train.jsonl", VCR)
    saved(folder, "vcr1images/x/a.json", METADATA)
    saved(folder, "vcr1images/x/a.jpg", picture())


def refs(folder: Path, name: str, splits: str) -> None:
    saved(folder, f"{name}/refs({splits}).p", pickle.dumps(OFFICIAL, 2))
    saved(folder, f"{name}/instances.json", INSTANCES | {"images": IMAGES})
    saved(folder, f"train2014/{NAME}.jpg", picture())


def vqa2(folder: Path) -> None:
    saved(folder, "v2_OpenEnded_mscoco_train2014_questions.json", QUESTIONS | {"data_subtype": "train2014"})
    saved(folder, "v2_mscoco_train2014_annotations.json", ANSWERS)
    other = QUESTIONS | {"data_subtype": "test2015", "questions": [QUESTIONS["questions"][0] | {"image_id": 8}]}
    saved(folder, "v2_OpenEnded_mscoco_test2015_questions.json", other)
    saved(folder, f"train2014/{TRAIN}.jpg", picture())


def karpathy(folder: Path, name: str, images: str) -> None:
    found = (
        KARPATHY
        if name == "coco"
        else {"images": [{"filename": "9.jpg", "split": "train", "sentences": [{"raw": "A dog."}]}]}
    )
    saved(folder, f"dataset_{name}.json", found)
    saved(folder, images, picture())


def gqa(folder: Path) -> None:
    saved(folder, "questions/train_balanced_questions.json", GQA)
    saved(folder, "images/9.jpg", picture())


def visual_genome(folder: Path) -> None:
    saved(
        folder,
        "region_descriptions.json",
        [
            {
                "id": 9,
                "regions": [
                    {"region_id": 1, "x": 1, "y": 2, "width": 3, "height": 4, "phrase": "a red kite", "image_id": 9}
                ],
            }
        ],
    )
    saved(
        folder,
        "question_answers.json",
        [
            {"id": 9, "qas": [{"qa_id": 5, "question": "Who?", "answer": "A man.", "image_id": 9}]},
            {"id": 10, "qas": []},
        ],
    )
    saved(folder, "VG_100K_2/9.jpg", picture())


def snli(folder: Path) -> None:
    saved(folder, "snli_ve_dev.jsonl", lines(SNLI))
    saved(folder, "flickr30k_images/9.jpg", picture())


def flickr8k(folder: Path) -> None:
    said = "1_a.jpg#0\tA dog .\n1_a.jpg#1\tIt runs .\n2_b.jpg#0\tA cat .\n3_c.jpg#0\tA cup .\n4_d.jpg.1#0\tNone .\n"
    saved(folder, "Flickr8k_text/Flickr8k.token.txt", said)
    for part, name in (("train", "1_a"), ("dev", "2_b")):
        saved(folder, f"Flickr8k_text/Flickr_8k.{part}Images.txt", f"{name}.jpg\n")
    saved(folder, "Flicker8k_Dataset/1_a.jpg", picture())


SETS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "flickr8k": (flickr8k, "train 1, val 1|1 of 2 images|3 captions|in no split's list: 1 .*files that are not images: 1"),
    "coco": (lambda folder: karpathy(folder, "coco", f"val2014/{NAME}.jpg"), "train 1, test 1|1 of 2 images|2 captions|empty captions: 1"),
    "flickr30k": (lambda folder: karpathy(folder, "flickr30k", "flickr30k-images/9.jpg"), "train 1|1 of 1 images|1 caption"),
    "flickr30k-entities": (entities, "train 1|1 of 1 images|1 caption, 2 expressions"),
    "cc3m": (web, "train 2|2 of 2 images|2 captions|images without a caption: 1 .*empty captions: 1 .*captions without an image: 1"),
    "cc12m": (web, "train 2|2 of 2 images|2 captions"),
    "sbu": (web, "train 2|2 of 2 images|2 captions"),
    "vqa2": (vqa2, "train 1, test 1|1 of 2 images|2 questions"),
    "gqa": (gqa, "train 2|1 of 2 images|2 questions"),
    "vcr": (vcr, "train 1|1 of 1 images|1 choice"),
    "refcoco": (lambda folder: refs(folder, "refcoco", "unc"), "testA 1|1 of 1 images|1 expression"),
    "refcoco+": (lambda folder: refs(folder, "refcoco+", "unc"), "testA 1|1 of 1 images|1 expression"),
    "refcocog": (lambda folder: refs(folder, "refcocog", "umd"), "testA 1|1 of 1 images|1 expression"),
    "visual-genome": (visual_genome, "train 2|1 of 2 images|1 caption, 1 question"),
    "nlvr2": (nlvr2, "train 1, val 1|2 of 2 images|4 statements"),
    "snli-ve": (snli, "val 1|1 of 1 images|3 entailment|without an agreed label: 1"),
}  # fmt: skip


def made(name: str, folder: Path) -> list[Record]:
    """The set's files in a folder, a manifest of them beside it, and what is read of that."""
    SETS[name][0](folder / "root")
    write_set(name, folder / "root", folder / "set.json", Console(file=io.StringIO()))
    return read(folder / "set.json", need_pictures=False)
