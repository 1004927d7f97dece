"""Public sets in the layouts in which they are downloaded: small files made by hand after each set's documentation."""

# ruff: noqa: E501  a table is read by its columns

from __future__ import annotations

import io
import json
import pickle
import re
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from diptych.core import Record
from diptych.core.entailment import LABELS
from diptych.data.formats.parsing import Skips
from diptych.data.formats.public import SETS_KNOWN, PublicLayout, describe_folder, list_files, list_sets
from diptych.data.formats.public_set import write_set
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.image_files import picture_size
from diptych.vision.pictures import open_picture
from tests.sources.test_formats import ANSWERS, IMAGES, KARPATHY, NAME, OFFICIAL, QUESTIONS
from tests.sources.test_readers import INSTANCES, METADATA, VCR, changed, places, saved, values

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


def test_each_set_has_a_layout_here() -> None:
    assert SETS.keys() == SETS_KNOWN.keys()
    assert [line.split()[0] for line in list_sets().splitlines()] == list(SETS_KNOWN)


@pytest.mark.parametrize("name", SETS)
def test_a_manifest_of_what_is_there_says_what_it_covers(name: str, tmp_path: Path) -> None:
    make, wanted = SETS[name]
    make(tmp_path / "root")
    console = Console(file=io.StringIO())
    told = write_set(name, tmp_path / "root", tmp_path / "set.json", console)

    for one in filter(None, wanted.split("|")):
        assert re.search(one, told), told
    manifest = json.loads((tmp_path / "set.json").read_text())
    assert not any(Path(str(path)).is_absolute() for one in manifest["sets"] for path in one.values())
    there = [record for record in read(tmp_path / "set.json") if record.image is not None]
    for record in there:
        assert record.image is not None
        assert picture_size(record.image) == (open_picture(record.image).shape[2], open_picture(record.image).shape[1])
    pieces = SETS_KNOWN[name].pieces()
    assert list_files(name).count("ROOT/") == len(pieces)
    assert describe_folder(name, tmp_path / "root").count("missing  ") == len(
        PublicLayout.of(name, tmp_path / "root").missing
    )


def test_what_is_missing_is_said_and_nothing_is_left_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no public set 'vqa'; did you mean vqa2"):
        list_files("vqa")
    with pytest.raises(
        DataError, match=r"no folder .*none; pass the folder with the files that `diptych data coco` lists"
    ):
        describe_folder("coco", tmp_path / "none")
    out, console = tmp_path / "set.json", Console(file=io.StringIO())
    with pytest.raises(DataError, match=r"no files of gqa in .*; put at least one part there: train_balanced"):
        write_set("gqa", tmp_path, out, console)
    saved(tmp_path, "train_balanced_questions.json", {"1": {"imageId": "9", "question": 5}})
    with pytest.raises(DataError, match=r"questions.json: 1.question: found a number, expected a text"):
        write_set("gqa", tmp_path, out, console)
    assert not out.exists()
    saved(tmp_path, "train_balanced_questions.json", GQA)
    assert "0 of 2 images exist" in write_set("gqa", tmp_path, out, console)
    write_set("gqa", tmp_path, out, console)  # over its own
    saved(tmp_path, "set.json", "[1]")
    with pytest.raises(
        DataError, match=r"set.json exists and is not a manifest that `diptych data` wrote; pass another"
    ):
        write_set("gqa", tmp_path, out, console)


def test_two_pictures_are_one_side_by_side(tmp_path: Path) -> None:
    train, val = made("nlvr2", tmp_path)
    assert (train.key, train.split, val.split) == ("train-1-0", "train", "val")
    assert [one.true for one in train.statements] == [True, False]
    assert train.image is not None
    assert picture_size(train.image) == (40 + 60, 20)
    (tmp_path / "root/images/dev/dev-1-0-img1.png").unlink()
    skips = Skips()
    assert [one.split for one in read(tmp_path / "set.json", skips=skips)] == ["train"]
    assert skips.counts == {"missing images": 1}


def test_phrases_have_the_box_around_all_of_theirs(tmp_path: Path) -> None:
    (one,) = made("flickr30k-entities", tmp_path)
    assert one.captions == ("Two girls with a hat in a park .",)
    assert [(said.text, said.box) for said in one.expressions] == [
        ("Two girls", (0.1, 0.2, 0.5, 0.8)),
        ("a hat", (0.2, 0.2, 0.5, 0.8)),
    ]
    file = tmp_path / "root/Annotations/9.xml"
    for content, message in (
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>', "9.xml: found a DOCTYPE"),
        ("<annotation>", "9.xml: cannot read its boxes"),
        (XML.replace("<width>100", "<width>x"), "9.xml: cannot read its boxes"),
        (XML.replace("<xmin>20<", "<xmin>1e9<"), "9.xml: cannot read its boxes"),
        (XML.replace("<ymax>40<", "<ymax>0<").replace("<ymax>20<", "<ymax>0<"), "9.xml, entity 1: found the box"),
    ):
        file.write_text(content)
        with pytest.raises(DataError, match=message):
            read(tmp_path / "set.json")


def test_pictures_in_tars(tmp_path: Path) -> None:
    first, second = made("cc3m", tmp_path)
    assert (first.key, first.captions, second.captions) == ("00000/000000000", ("a dog",), ("un café",))
    assert second.image == tmp_path / "root/00001.tar/000010000.webp"
    assert open_picture(second.image).shape == (3, 9, 7)
    with pytest.raises(DataError, match=r"no image at .*00001.tar/none.jpg"):
        open_picture(tmp_path / "root/00001.tar/none.jpg")
    whole = (tmp_path / "root/00001.tar").read_bytes()
    (tmp_path / "root/00001.tar").write_bytes(whole[: 512 + 20])
    with pytest.raises(
        DataError, match=r"00001.tar: found a tar that is cut short|00001.tar: cannot be read as an archive"
    ):
        read(tmp_path / "set.json")


def test_one_tar_is_read_by_its_path(tmp_path: Path) -> None:
    made("cc3m", tmp_path)
    tar = tmp_path / "root/00001.tar"
    assert [one.key for one in read(tar)] == [one.key for one in read(tar.parent) if one.key.startswith("00001/")]
    assert read(tar.rename(tar.with_suffix(".TAR")))[0].captions == ("un café",)


def test_a_long_name_of_a_missing_image_is_cut(tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text(json.dumps({"image": "x" * 5000, "caption": "a dog"}))
    with pytest.raises(DataError, match=r"found no image .{200}\.\.\.; download it") as refused:
        read(tmp_path / "captions.jsonl")
    assert len(str(refused.value)) < 500


def test_folders_that_img2dataset_made(tmp_path: Path) -> None:
    saved(tmp_path, "sbu/00000/000000001.jpg", picture())
    saved(tmp_path, "sbu/00000/000000001.txt", "a dog")
    (one,) = read(tmp_path / "sbu", split="web")
    assert (one.captions, one.split, one.image) == (("a dog",), "web", tmp_path / "sbu/00000/000000001.jpg")


def test_real_samples(data_folder: Path, tmp_path: Path) -> None:
    found = read(data_folder / "formats/snli_ve/sample_pairs.jsonl", need_pictures=False)
    assert Counter(said.answers for one in found for said in one.more["entailment"]).keys() == {
        (one,) for one in LABELS
    }
    (first, *_) = read(data_folder / "formats/nlvr2/tiny-dev.json", need_pictures=False)
    assert (first.key, first.statements[0].key) == ("dev-850-0", "dev-850-0-0")
    (one,) = read(data_folder / "formats/vcr/train_one.jsonl", need_pictures=False)
    assert one.choices[0].answer == 1
    (asked, *_) = read(data_folder / "formats/vqav2/questions.json", need_pictures=False)
    assert asked.key.startswith("COCO_train2014_")


REGIONS = [{"id": 9, "regions": [{"region_id": 1, "phrase": "a red kite"}]}]
ASKED = [{"id": 9, "qas": [{"qa_id": 5, "question": "Who?", "answer": "A man."}]}]
MANIFEST = {"images": ".", "split": "val", "sets": [{"gqa": "gqa.json", "vqa": ["gqa.json"], "images": ["."]}]}
FORMS: list[tuple[str, Any]] = [
    ("k.json", KARPATHY), ("gqa.json", GQA), ("s.jsonl", SNLI[0]), ("r.json", REGIONS), ("q.json", ASKED), ("n.jsonl", NLVR2[0]),
    ("refs.p", OFFICIAL), ("m.json", MANIFEST), ("f.jsonl", {"image": "a.zip@/0.jpg", "caption": ["a", "dog"], "frcnn": "x"}),
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_but_a_data_error_ever_comes_out(data: st.DataObject, tmp_path: Path) -> None:
    """Any place of a good file with anything in it is read or refused by name."""
    name, good = data.draw(st.sampled_from(FORMS))
    value = changed(good, *data.draw(st.sampled_from(places(good))), to=data.draw(values))
    saved(tmp_path, "instances.json", INSTANCES | {"images": IMAGES})
    saved(tmp_path, "gqa.json", GQA)
    saved(tmp_path, name, pickle.dumps(value, 2) if name == "refs.p" else value)
    if name == "refs.p":
        saved(tmp_path, "of-refs.json", {"refcoco": ["refs.p", "instances.json"]})
        name = "of-refs.json"
    try:
        read(tmp_path / name, need_pictures=False)
    except DataError as error:
        assert "expected" in str(error)  # noqa: PT017
