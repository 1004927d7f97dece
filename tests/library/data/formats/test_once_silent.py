"""What readers once took in silence: splits by other names, files left aside, ids and names that occur twice."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from diptych.data.formats import coco, flickr30k, refcoco, vcr, vqa2
from diptych.data.formats import table as formats
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Skips
from diptych.runtime.errors import DataError

IMAGES = [{"id": 7, "file_name": "a.jpg", "width": 100, "height": 50}]
CAPTIONS = {"images": IMAGES, "annotations": [{"image_id": 7, "id": 1, "caption": "a dog"}]}
INSTANCES = {"images": IMAGES, "categories": [{"id": 1, "name": "dog"}],
             "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 50, 20]}]}  # fmt: skip


def saved(path: Path, value: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


SPELT = {"Train": "train", "training": "train", "TEST": "test", "test ": "test", "validation": "val", "Valid": "val",
         "dev": "val", "test_rare": "test_rare", " Web ": "Web"}  # fmt: skip


@pytest.mark.parametrize("name", SPELT)
def test_usual_splits_under_other_names(name: str, tmp_path: Path) -> None:
    """In a line, a manifest, Karpathy's file and rows of Python."""
    line = json.dumps({"image": "a.png", "captions": ["a dog"], "split": name})
    karpathy = {"images": [{"filename": "a.png", "split": name, "sentences": [{"raw": "a dog"}]}]}
    saved(tmp_path / "k.json", karpathy)
    saved(tmp_path / "m.json", {"split": name, "captions": saved(tmp_path / "c.json", CAPTIONS).name})
    for number, file in enumerate((saved(tmp_path / "o.jsonl", line), tmp_path / "k.json", tmp_path / "m.json")):
        skips = Skips()
        (record, *_) = formats.read(file, need_pictures=False, skips=skips)
        assert record.split == SPELT[name], number
        renamed = [what for what in skips.counts if "of the split" in what]
        assert renamed == ([f"images of the split {name!r} (read as {SPELT[name]!r})"] if name != SPELT[name] else [])


SET = {"images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(30)],
       "annotations": [{"image_id": n, "id": n, "caption": "a dog"} for n in range(30)]}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "split"),
    [("captions_val2017", "val"), ("Train", "train"), ("my-dev", "val"), ("test_images", "test"), ("coco", None),
     ("trainval", None), ("train_and_val", None), ("latest", None)],
)  # fmt: skip
def test_a_split_in_the_name_of_a_file_is_said(name: str, split: str | None, tmp_path: Path) -> None:
    """The images are drawn into all splits, as before: some people have only the file `captions_val2017.json`."""
    file = saved(tmp_path / f"{name}.json", SET)
    lines = [json.dumps({"image": f"{n}.jpg", "captions": ["a dog"]}) for n in range(30)]
    manifest = saved(tmp_path / "m.json", {"captions": file.name})
    for source in (file, manifest, saved(tmp_path / f"{name}.jsonl", "\n".join(lines))):
        skips = Skips()
        records = formats.read(source, need_pictures=False, skips=skips)
        assert {one.split for one in records} == {"train", "val", "test"}
        others = sum(one.split != split for one in records)
        why = f"images in random splits, though the file's name has {split!r} (set the split to use that)"
        assert skips.counts == ({} if split is None else {why: others})
        formats.read(source, need_pictures=False, skips=(skips := Skips()), split="val")
        assert not skips.counts


def test_lines_without_a_split_next_to_lines_with_one(tmp_path: Path) -> None:
    """A split that is null or empty is none."""
    splits: list[dict[str, Any]] = [{"split": "test"}, {"split": None}, {"split": " "}, {}]
    lines = [{"image": f"{n}.jpg", "captions": ["a dog"], **split} for n, split in enumerate(splits)]
    lines.append({"image": "3.jpg", "captions": ["a cat"], "split": "web"})  # a later line of the image names one
    skips = Skips()
    file = saved(tmp_path / "o.jsonl", "\n".join(map(json.dumps, lines)))
    records = formats.read(file, need_pictures=False, skips=skips)
    assert [one.split for one in records] == ["test", *(formats.drawn_split(f"{n}.jpg", 0) for n in (1, 2)), "web"]
    assert skips.counts == {"images without a split, in data with splits (a random split is used)": 2}


def test_a_dev_split_next_to_a_val_split_stays_apart(tmp_path: Path) -> None:
    lines = [{"image": f"{split}.png", "captions": ["a dog"], "split": split} for split in ("val", "dev", "Val")]
    skips = Skips()
    file = saved(tmp_path / "o.jsonl", "\n".join(map(json.dumps, lines)))
    assert [one.split for one in formats.read(file, need_pictures=False, skips=skips)] == ["val", "dev", "val"]
    assert any(what.startswith("two names of the same split, 'dev' and 'val'") for what in skips.counts)


def test_one_image_under_two_names_of_its_split_is_in_one_split(tmp_path: Path) -> None:
    lines = [
        {"image": "a.jpg", "captions": [text], "split": split} for text, split in (("a", "Train"), ("b", "train "))
    ]
    own = saved(tmp_path / "o.jsonl", "\n".join(map(json.dumps, lines)))
    sets = [
        {"split": one["split"], "captions": saved(tmp_path / f"{n}.json", CAPTIONS).name} for n, one in enumerate(lines)
    ]
    manifest = saved(tmp_path / "m.json", {"sets": sets})
    for file in (own, manifest):
        (one,) = formats.read(file, need_pictures=False)
        assert (one.split, len(one.captions)) == ("train", 2)


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path: Path) -> None:
    for name in ("a.png", "b.avif", "c.HEIC", "d/e.heic", "f", ".hidden"):
        saved(tmp_path / name, "x")
    skips = Skips()
    assert [one.key for one in formats.read(tmp_path, skips=skips)] == ["a.png"]
    named = {"files ending in .avif (not read)": 1, "files ending in .heic (not read)": 2}
    assert skips.counts == named | {"files ending in nothing (not read)": 1}


def test_ids_that_two_categories_or_captions_share(tmp_path: Path) -> None:
    file = json.loads(json.dumps(INSTANCES))
    file["categories"].append({**file["categories"][0], "name": "another"})
    skips = Skips()
    coco.read_instances(Wanted(split="train", skips=skips), Source(saved(tmp_path / "i.json", file)))
    assert skips.counts["invalid entries"] == 1
    assert "an id that 'dog' does not have" in skips.first["invalid entries"]
    captions = json.loads(json.dumps(CAPTIONS))
    captions["annotations"].append(dict(captions["annotations"][0], id=5))
    captions["annotations"].append(dict(captions["annotations"][0], id=5))
    coco.read_captions(Wanted(split="train", skips=skips), Source(saved(tmp_path / "c.json", captions)))
    assert skips.counts["caption ids that occur twice (both captions are kept)"] == 1


def test_attributes_that_are_no_texts_cost_no_instance(tmp_path: Path) -> None:
    """CVAT writes `occluded`."""
    file = json.loads(json.dumps(INSTANCES))
    file["annotations"][0]["attributes"] = {"occluded": False, "rotation": 0.0, "colour": "red", "half": "\ud83d"}
    (one,) = coco.read_instances(Wanted(split="train"), Source(saved(tmp_path / "i.json", file)))
    assert one.objects[0].attributes == {"colour": "red"}


def test_captions_of_a_tar_in_its_notes_and_names_twice(tmp_path: Path) -> None:
    """Of img2dataset without .txt; a second file of a name replaces the first, which is counted."""
    files = [("0.jpg", b"x"), ("0.json", b'{"caption": "a red kite"}'), ("1.jpg", b"x"), ("1.txt", b"one"),
             ("1.json", b'{"caption": "other"}'), ("1.txt", b"two"), ("2.jpg", b"x"), ("2.json", b"{}")]  # fmt: skip
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for name, content in files:
            (member := tarfile.TarInfo(name)).size = len(content)
            tar.addfile(member, io.BytesIO(content))
    skips = Skips()
    records = formats.read(tmp_path / "0.tar", skips=skips)
    assert {one.key: one.captions for one in records} == {"0/0": ("a red kite",), "0/1": ("two",)}
    assert skips.counts == {"invalid entries": 1, "images without a caption": 1}
    assert "1.txt occurs twice, and the last one is read" in skips.first["invalid entries"]


FAR = "boxes that extend far outside the image (clipped; expected x1, y1, x2, y2 in pixels)"
ASKED = {"annot_id": "1", "img_fn": "a.jpg", "objects": ["person", "dog"], "question": ["why", [1]],
         "answer_choices": [["a"], ["b"], ["c"], ["d"]], "answer_label": 0, "metadata_fn": "a.json"}  # fmt: skip


def test_boxes_of_vcr_and_flickr30k_far_outside_are_counted(tmp_path: Path) -> None:
    notes = {"names": ["person", "dog"], "boxes": [[0, 0, 50, 50], [0, 0, 300, 200]], "width": 100, "height": 50}
    saved(tmp_path / "a.json", notes)
    lines, skips = saved(tmp_path / "v.jsonl", ASKED), Skips()
    (one,) = vcr.read(Wanted(split="train", skips=skips), Source(lines), Source(tmp_path))
    assert (one.objects[1].box, skips.counts) == ((0, 0, 1, 1), {FAR: 1})
    box = "<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>300</xmax><ymax>200</ymax></bndbox>"
    size = "<size><width>100</width><height>50</height></size>"
    saved(tmp_path / "boxes/7.xml", f"<annotation>{size}<object><name>1</name>{box}</object></annotation>")
    saved(tmp_path / "texts/7.txt", "[/EN#1/people A girl] sits .")
    names, skips = saved(tmp_path / "train.txt", "7"), Skips()
    wanted = Wanted(skips=skips)
    flickr30k.read(wanted, *map(Source, (tmp_path / "texts", names, tmp_path / "boxes")))
    assert skips.counts == {FAR: 1}


def test_a_line_of_vcr_with_other_objects_of_its_image_is_refused(tmp_path: Path) -> None:
    others = [ASKED, ASKED | {"annot_id": "2", "objects": ["dog", "person"]}]
    lines, skips = saved(tmp_path / "v.jsonl", "\n".join(map(json.dumps, others))), Skips()
    (one,) = vcr.read(Wanted(split="train", skips=skips), Source(lines))
    assert (len(one.choices), skips.counts) == (1, {"invalid entries": 1})


def test_two_files_with_sizes_of_other_shapes_of_an_image_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "c.json", CAPTIONS)
    turned = INSTANCES | {"images": [{**IMAGES[0], "width": 50, "height": 100}]}
    saved(tmp_path / "i.json", turned)
    both = saved(tmp_path / "m.json", {"split": "train", "captions": "c.json", "instances": "i.json"})
    with pytest.raises(DataError, match="100 x 50 pixels in one file and 50 x 100 in another"):
        formats.read(both, need_pictures=False)


def test_ids_of_another_image_are_refused(tmp_path: Path) -> None:
    """A question's annotation, or a reference's box, that names an image of its own."""
    questions = [{"question_id": n, "image_id": n, "question": "what"} for n in (1, 2)]
    asked = Source(saved(tmp_path / "q.json", {"data_subtype": "val2014", "questions": questions}))
    answers = [{"question_id": n, "image_id": 1, "answers": [{"answer": "dog"}]} for n in (1, 2)]
    known, skips = Source(saved(tmp_path / "a.json", {"annotations": answers})), Skips()
    (one,) = vqa2.read(Wanted(split="train", skips=skips), asked, known)
    assert (one.questions[0].key, skips.counts) == ("1", {"invalid entries": 1})

    images = [{"id": n, "file_name": f"{n}.jpg", "width": 100, "height": 50} for n in (1, 2)]
    notes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [0, 0, 50, 20]} for n in (1, 2)]
    refs = [{"ref_id": n, "image_id": n, "ann_id": 1, "split": "train", "sentences": [{"sent_id": n, "sent": "a dog"}]}
            for n in (1, 2)]  # fmt: skip
    instances = saved(tmp_path / "i.json", {"images": images, "annotations": [*notes, notes[0]]})
    skips = Skips()
    (one,) = refcoco.read(Wanted(skips=skips), Source(saved(tmp_path / "r.json", refs)), Source(instances))
    assert (one.key, skips.counts) == ("1", {"invalid entries": 2})
