"""Public sets in the layouts in which they are downloaded: small files made by hand after each set's documentation."""

# ruff: noqa: E501  a table is read by its columns

from __future__ import annotations

import io
import json
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from diptych.core.entailment import LABELS
from diptych.data.formats.parsing import Skips
from diptych.data.formats.public import SETS_KNOWN, PublicLayout, describe_folder, list_files, list_sets
from diptych.data.formats.public_set import write_set
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.image_files import picture_size
from diptych.vision.pictures import open_picture
from tests.support.public_files import (
    IMAGES,
    INSTANCES,
    KARPATHY,
    OFFICIAL,
    changed,
    places,
    saved,
    values,
)
from tests.support.public_sets import GQA, NLVR2, SETS, SNLI, XML, made, picture


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
