"""Data as a user names it: what each format is recognised by, manifests that join files by picture, and a toy format."""

# ruff: noqa: E501  a table is read by its columns

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from diptych.core import Record, TaskItem
from diptych.data.formats import table as formats
from diptych.data.formats.format import Format, Source, Wanted
from diptych.data.formats.parsing import Skips
from diptych.data.formats.table import FORMATS, read
from diptych.runtime.errors import DataError
from diptych.vision.pictures import open_picture
from tests.support.public_files import (
    ANSWERS,
    CAPTIONS,
    IMAGES,
    INSTANCES,
    KARPATHY,
    METADATA,
    NAME,
    NLVR,
    OFFICIAL,
    QUESTIONS,
    REFS,
    VCR,
    saved,
)

COCO = CAPTIONS | {"images": IMAGES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one picture in the place where each format looks for it."""
    for name in (f"{NAME}.jpg", f"val2014/{NAME}.jpg", "val2014/b.jpg", "x/a.jpg", "a.jpg", "9.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (100, 50)).save(tmp_path / name)
    return tmp_path


FILES: list[tuple[str, str, Any, Callable[[Record], Any], Any]] = [
    ("lines", "o.jsonl", {"image": "a.jpg", "captions": ["x"]}, lambda one: one.captions, ("x",)),
    ("captions", "c.json", COCO, lambda one: one.captions, ("A dog.",)),
    ("captions", "pretty.json", json.dumps(COCO, indent=1), lambda one: one.captions, ("A dog.",)),
    ("instances", "i.json", INSTANCES, lambda one: one.objects[0].kind, "dog"),
    ("karpathy", "k.json", KARPATHY, lambda one: (one.captions, one.split), (("A dog.",), "train")),
    ("vqa", "q.json", QUESTIONS, lambda one: one.questions[0].text, "What?"),
    ("refcoco", "r.json", REFS, lambda one: one.expressions[0].text, "the dog"),
    ("vcr", "v.jsonl", VCR, lambda one: one.choices[0].answer, 2),
    ("nlvr", "n.jsonl", NLVR, lambda one: one.statements[0].true, True),
    ("hateful-memes", "dev_seen.jsonl", {"id": 8291, "img": "a.jpg", "text": "what a day", "label": 1}, lambda one: one.more["classify"], (TaskItem("8291", "what a day", ("1",)),)),
    ("hateful-memes", "test.jsonl", {"id": 8291, "img": "a.jpg", "text": "what a day"}, lambda one: one.more["classify"], (TaskItem("8291", "what a day"),)),
    ("lines", "own.jsonl", {"image": "a.jpg", "text": "what a day", "label": "Funny"}, lambda one: one.more["classify"], (TaskItem("a.jpg/0", "what a day", ("Funny",)),)),
    ("flickr8k", "results.token", "a.jpg#0\tA dog .\na.jpg#1\tIt has a #1 .", lambda one: one.captions, ("A dog .", "It has a #1 .")),
    ("flickr8k", "captions.txt", 'image,caption\na.jpg,A dog .\na.jpg,"A dog , and a cat"', lambda one: (one.key, one.captions), ("a.jpg", ("A dog .", "A dog , and a cat"))),
    ("flickr8k", "c.csv", '"image","caption"\ra.jpg,A dog .\r', lambda one: one.captions, ("A dog .",)),
    ("flickr8k", "c.tsv", 'image\tcaption\na.jpg\tA dog .\na.jpg\t"Wow" , a cat', lambda one: (one.key, one.captions), ("a.jpg", ("A dog .", '"Wow" , a cat'))),
    ("conceptual", "h.tsv", "caption\timage_url\na dog\ta.jpg", lambda one: (one.key, one.captions), ("h/000001", ("a dog",))),
    ("conceptual", "t.tsv", "a dog\ta.jpg", lambda one: (one.key, one.captions), ("t/000000", ("a dog",))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "content", "take", "wanted"), FILES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_format_is_recognised_and_read(
    name: str, file: str, content: Any, take: Callable[[Record], Any], wanted: Any, folder: Path
) -> None:
    source = Source(saved(folder, file, content))
    assert next(known for known, one in FORMATS.items() if one.fits(source)) == name
    assert take(read(source.path)[0]) == wanted


def test_folders(folder: Path) -> None:
    assert [record.key for record in read(folder / "val2014")] == [f"{NAME}.jpg", "b.jpg"]
    saved(folder, "Sentences/1.txt", "[/EN#1/people A girl] sits .")
    with pytest.raises(
        DataError,
        match=r'Sentences: Flickr30k.*: names is missing; .*"flickr30k": \["FOLDER OF THE SENTENCES", "NAMES"\]',
    ):
        read(folder / "Sentences")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images in .*empty; expected some, .*diptych data formats"):
        read(folder / "empty")
    for split in ("train", "val"):
        (folder / f"by_split/{split}").mkdir(parents=True)
        (folder / f"by_split/{split}/00000.tar").touch()
    with pytest.raises(
        DataError, match=r"no images in .*by_split; pass a folder of tars \(train, val\), or a manifest"
    ):
        read(folder / "by_split")


@pytest.mark.parametrize(("file", "content", "nearest"), [
    ("c.json", {"images": [{"id": 1}], "captions": [{"image_id": 1, "caption": "x"}]},
     "with `images`, `captions`, `id`, `image_id`, `caption`, is not data that Diptych reads; expected one of 24 "
     "formats, nearest: captions, a COCO captions .json (lacks annotations); visual-genome, Visual Genome's region_descriptions.json (lacks regions); all formats: diptych data formats"),
    ("t.json", [{"identifier": "x", "sentence": "y"}], "nlvr, .*lacks image, .jsonl.*nlvr2, .*lacks label, .jsonl"),
    ("zh.txt", "0.jpg#zh a dog", "nearest: flickr8k, .*lacks image, caption.*"),
    ("m.csv", "image,text\na.jpg,x", "nearest: image-folder, .*lacks file_name.*flickr8k, .*lacks caption"),
    ("f.tsv", "filepath\ttitle\na.jpg\tx", "with `filepath`, `title`, is not data.*nearest: .*flickr8k, .*lacks image, caption"),
    ("results.csv", "image_name| comment_number| comment\na.jpg| 0| x", r"has columns separated by bars \(\|\); expected commas"),
    ("n.csv", "", "n.csv is empty; write it again"),
    ("p.yaml", "- a", "nearest: .*; all formats"),
])  # fmt: skip
def test_an_unknown_file_is_compared_with_the_nearest_formats(
    file: str, content: Any, nearest: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        read(saved(tmp_path, file, content))
    assert nearest in str(caught.value) or re.search(nearest, str(caught.value)), caught.value
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_a_new_format_has_an_ending_or_names_that_an_unknown_file_is_compared_with() -> None:
    folders = {"mined", "storybook", "flickr30k", "web", "pictures"}
    assert {name for name, one in FORMATS.items() if not one.endings and not one.names} == folders
    assert all(name in formats.list_formats() for name in FORMATS)


def test_vl_berts_lines_name_pictures_in_a_zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "val_image.zip", "w") as archive:
        for name in ("0.jpg", "1.jpg"):
            archive.write(folder / "a.jpg", name)
    lines = [{"image": f"val_image.zip@/{n}.jpg", "caption": ["a", "dog"], "frcnn": "x"} for n in (0, 1)]
    found = read(saved(folder, "val_frcnn.json", "\n".join(map(json.dumps, lines))))
    assert [(one.key, one.captions) for one in found] == [("0", ("a dog",)), ("1", ("a dog",))]
    assert [open_picture(one.image).shape for one in found if one.image is not None] == [(3, 50, 100)] * 2
    with pytest.raises(DataError, match=r"v.jsonl line 1: found no image .*val_image.zip/2.jpg"):
        read(saved(folder, "v.jsonl", lines[0] | {"image": "val_image.zip@/2.jpg"}))


def test_pictures_that_nobody_needs_are_known_where_they_are(folder: Path) -> None:
    lines = [{"image": name, "captions": ["x"], "width": 7, "height": 9} for name in ("a.jpg", "none.jpg")]
    found = read(saved(folder, "o.jsonl", "\n".join(map(json.dumps, lines))), need_pictures=False)
    assert [(one.image, one.size) for one in found] == [(folder / "a.jpg", (7, 9)), (None, (7, 9))]


def manifest(folder: Path, **named: Any) -> Path:
    return saved(folder, "m.json", named)


def test_a_manifest_joins_what_is_known_of_a_picture(folder: Path) -> None:
    saved(folder, "annotations/c.json", COCO)
    saved(folder, "q.json", QUESTIONS)
    saved(folder, "a.json", ANSWERS)
    saved(folder, "r.json", REFS | {"images": IMAGES})
    saved(folder, "n.jsonl", NLVR | {"image": f"{NAME}.jpg"})
    saved(folder, "o.jsonl", {"image": f"val2014/{NAME}.jpg", "captions": ["mine"]})
    (one,) = read(manifest(folder, images="val2014", split="val", captions="annotations/c.json", vqa=["q.json", "a.json"],
                           refcoco="r.json", nlvr="n.jsonl"))  # fmt: skip
    assert (one.key, one.split, one.image, one.captions) == (
        NAME,
        "val",
        folder / "val2014" / f"{NAME}.jpg",
        ("A dog.",),
    )
    assert (one.questions[0].answers[0], one.expressions[0].text, one.statements[0].true) == ("dog", "the dog", True)
    (one,) = read(
        manifest(folder, lines="o.jsonl", captions="annotations/c.json", images=[".", "val2014"], split="val")
    )[:1]
    assert one.key == f"val2014/{NAME}.jpg"


def test_pictures_with_one_name_in_two_folders_stay_two(folder: Path) -> None:
    for split in ("train", "val"):
        saved(folder, f"{split}.jsonl", {"image": "a.jpg", "captions": [split]})
        (folder / split).mkdir()
        Image.new("RGB", (100, 50)).save(folder / split / "a.jpg")
    sets = [{"images": split, "split": split, "lines": f"{split}.jsonl"} for split in ("train", "val")]
    found = read(manifest(folder, sets=sets))
    assert [(one.key, one.split, one.captions) for one in found] == [
        ("a.jpg", "train", ("train",)),
        ("val/a.jpg", "val", ("val",)),
    ]


def test_sets_of_their_own_splits_and_pictures_that_are_not_there(folder: Path) -> None:
    saved(folder, "k.json", KARPATHY)
    (folder / "val2014" / "b.jpg").unlink()
    skips = Skips()
    (one,) = read(manifest(folder, karpathy="k.json"), skips=skips)
    assert (one.key, one.split) == (NAME, "train")
    assert skips.counts == {"empty captions": 1, "missing images": 1}
    assert "val2014/b.jpg" in skips.first["missing images"]
    assert [one.split for one in read(manifest(folder, karpathy="k.json"), need_pictures=False)] == ["train", "test"]
    (folder / "elsewhere").mkdir()
    with pytest.raises(
        DataError,
        match=r"m.json: found none of the 2 images that it names .*; download the images, or set `images` to their folder",
    ):
        read(manifest(folder, karpathy="k.json", images="elsewhere"))
    (one,) = read(manifest(folder, karpathy="k.json", images="elsewhere"), folder)
    assert one.image == folder / "val2014" / f"{NAME}.jpg"


def test_a_manifest_draws_splits_as_lone_files_do(folder: Path) -> None:
    saved(folder, "c.json", COCO)
    (one,) = read(manifest(folder, captions="c.json"), seed=3)
    assert one.split == formats.drawn_split(NAME, 3)
    (one,) = read(manifest(folder, captions="c.json"), split="test")
    assert one.split == "test"


def test_refcoco_as_it_is_downloaded(folder: Path) -> None:
    (folder / "refs(unc).p").write_bytes(pickle.dumps(OFFICIAL, protocol=2))
    saved(folder, "instances.json", INSTANCES | {"images": IMAGES})
    (one,) = read(manifest(folder, images="val2014", refcoco=["refs(unc).p", "instances.json"]))
    assert (one.key, one.split, one.size) == (NAME, "testA", (100, 50))
    assert (one.expressions[0].text, one.expressions[0].box) == ("the dog", (0.1, 0.2, 0.3, 0.6))
    with pytest.raises(
        DataError, match=r"refs\(unc\).p: found refs without boxes, expected a second file, `instances.json`"
    ):
        read(folder / "refs(unc).p")
    both = [OFFICIAL[0], OFFICIAL[0] | {"ref_id": 2, "split": "train", "sentences": []}]
    saved(folder, "refs.json", both)
    with pytest.raises(
        DataError, match=r"\[1\]: found a ref of split 'train' on an image with refs of 'testA', expected .* umd splits"
    ):
        read(manifest(folder, images="val2014", refcoco=["refs.json", "instances.json"]))
    saved(folder, "refs.json", [{k: v for k, v in both[1].items() if k != "split"}, OFFICIAL[0]])
    (one,) = read(manifest(folder, images="val2014", refcoco=["refs.json", "instances.json"]), split="val")
    assert one.split == "testA"
    saved(folder, "refs.json", [OFFICIAL[0] | {"ann_id": 5}])
    with pytest.raises(
        DataError, match=r"\[0\].ann_id: found the annotation id 5, expected one that instances.json has"
    ):
        read(manifest(folder, images="val2014", refcoco=["refs.json", "instances.json"]))


def test_vcr_and_flickr30k_of_several_files(folder: Path) -> None:
    saved(folder, "v.jsonl", VCR)
    saved(folder, "x/a.json", METADATA)
    (one,) = read(manifest(folder, images=".", vcr=["v.jsonl", "."]))
    assert [thing.kind for thing in one.objects] == ["person", "dog"]
    saved(folder, "Sentences/9.txt", "[/EN#1/people A girl] sits .")
    saved(folder, "test.txt", "9\n")
    (one,) = read(manifest(folder, flickr30k=["Sentences", "test.txt"]))
    assert (one.key, one.split, one.captions) == ("9", "test", ("A girl sits .",))


BAD: list[tuple[Any, str]] = [
    ({"imags": "val2014", "captions": "c.json"}, r"m.json: found `imags`, expected images, split.*did you mean images"),
    ({"picturs": "val2014", "captoins": "c.json"}, r"found `picturs`.*"),
    ({"images": "val2014"}, "found no file of data, expected at least one, under .*captions"),
    ({"images": "none", "captions": "c.json"}, r"m.json: images: found no folder .*none, expected the folder of the images .*--images"),
    ({"images": [], "captions": "c.json"}, "images: found no folder, expected at least one"),
    ({"captions": "none.json"}, r"m.json: captions: found nothing at .*none.json, expected the file of the format captions; correct"),
    ({"captions": "q.json"}, r"captions: found the file q.json, expected a COCO captions .json; it looks like `vqa`"),
    ({"captions": ["c.json", "c.json"]}, "captions: found 2 files, expected 1 to 1: file"),
    ({"flickr30k": "val2014"}, "flickr30k: found 1 files, expected 2 to 3: folder of the sentences, names, folder of the boxes"),
    ({"vqa": ["q.json", "none.json"]}, r"vqa\[1\]: found nothing at .*none.json, expected the annotations of the format vqa"),
    ({"images": ".", "vqa": [5]}, r"vqa\[0\]: found a number, expected a text"),
    ({"images": ".", "vqa": 5}, "vqa: found a number, expected a text"),
    ({"images": ".", "vqa": []}, "vqa: found 0 files, expected 1 to 2: questions, annotations"),
    ({"split": 3, "captions": "c.json"}, "split: found a number, expected a text"),
    ({"sets": []}, "sets: found no sets, expected at least one"),
    ({"sets": [{"captions": "c.json"}, 3]}, r"sets\[1\]: found a number, expected an object"),
    ({"sets": "c.json"}, "sets: found a text, expected a list"),
    ({"sets": [{"captions": "c.json", "split": "val"}, {"captions": "c.json", "split": "test"}]}, "this image has the splits val and test, expected one split"),
    ({"a": 1, "b": {}}, r"m.json, with `a`, `b`, is not data that Diptych reads; expected one of 24 formats, nearest: "),
    ({}, "m.json is not data that Diptych reads; expected one of 24 formats, nearest: "),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), BAD)
def test_what_is_wrong_with_a_manifest_is_named(value: Any, message: str, folder: Path) -> None:
    saved(folder, "c.json", COCO)
    saved(folder, "q.json", QUESTIONS)
    with pytest.raises(DataError, match=message):
        read(saved(folder, "m.json", value))


def test_a_format_of_ones_own_needs_no_change_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/add-a-source.md has it: a reader, and an entry in the table."""

    def birds(wanted: Wanted, table: Source) -> list[Record]:
        rows = (line.split(";") for line in table.path.read_text().splitlines())
        assert isinstance(wanted.pictures, Path)
        return wanted.splitting([Record(name, image=wanted.pictures / name, captions=(bird,)) for name, bird in rows])

    monkeypatch.setitem(
        FORMATS, "birds", Format("a .birds table", lambda source: source.path.suffix == ".birds", birds)
    )
    table = saved(folder, "mine.birds", "a.jpg;a heron")
    (one,) = read(table, split="val")
    assert (one.captions, one.split, one.image) == (("a heron",), "val", folder / "a.jpg")


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl.gz", gzip.compress(b"{}", mtime=0), r"a.jsonl.gz is compressed by gzip; unpack it: gunzip -k \S*a.jsonl.gz"),
    ("a.jsonl.bz2", bz2.compress(b"{}"), "is compressed by bzip2; unpack it: bunzip2 -k"),
    ("a.xz", lzma.compress(b"{}"), "is compressed by xz; unpack it: unxz -k"),
    ("a.xlsx", b"PK\x03\x04rest", "is a zip archive or an office document; save its table as .csv"),
    ("a.parquet", b"PAR1restPAR1", r"is a Parquet file; in Python: diptych.Dataset.from_rows\(pandas.read_parquet"),
    ("a.csv", b"photos/a.JPG,a dog\n", "begins with an image; add a first line that names the columns"),
    ("a.csv", b"image;caption\na.jpg;a dog\n", "has columns separated by semicolons; expected commas"),
])  # fmt: skip
def test_data_in_another_form_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)
