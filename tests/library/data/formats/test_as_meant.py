"""Data that was read in silence as something else: now read as its author meant it, or named."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from diptych import Dataset
from diptych.core import Record
from diptych.data.formats.parsing import Skips
from diptych.data.formats.public import PublicLayout
from diptych.data.formats.public_set import write_set
from diptych.data.formats.table import read
from diptych.runs.evaluation.evaluate import score_file
from diptych.runtime.errors import DataError
from diptych.tasks.gallery import RetrievalGallery
from diptych.tasks.matching import rankings
from tests.support.public_files import saved
from tests.support.public_sets import SNLI, lines, picture, refs, vcr


def there(name: str, root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in PublicLayout.of(name, root).there.values())


@pytest.mark.parametrize(("name", "other"), [("refcoco+", "refcoco"), ("refcoco", "refcoco+"), ("refcoco+", "unc")])
@pytest.mark.parametrize("empty", [False, True])
def test_refs_of_another_set_are_missing(name: str, other: str, empty: bool, tmp_path: Path) -> None:
    refs(tmp_path / "root", other, "unc")
    if empty:
        (tmp_path / "root" / name).mkdir()
    console = Console(file=io.StringIO(), width=500)
    with pytest.raises(DataError, match="no files of"):
        write_set(name, tmp_path / "root", tmp_path / "set.json", console)
    assert f"missing: {tmp_path}/root/{name}/refs(unc).p" in console.file.getvalue()  # type: ignore[attr-defined]
    if other != "unc":
        assert there(name, tmp_path / "root" / other) == []


def test_refs_without_a_folder_of_their_name_count_in_root_itself(tmp_path: Path) -> None:
    refs(tmp_path, "unc", "unc")
    assert there("refcoco+", tmp_path / "unc") == ["instances.json", "refs(unc).p"]
    refs(tmp_path / "deep", "refcoco", "unc")
    refs(tmp_path / "deep", "refcoco+", "unc")
    assert there("refcoco+", tmp_path / "deep") == ["refcoco+/instances.json", "refcoco+/refs(unc).p", "train2014"]


def test_images_come_from_the_folder_with_the_files_of_the_set(tmp_path: Path) -> None:
    saved(tmp_path, "coco/images/1.jpg", picture())
    saved(tmp_path, "flickr30k/snli_ve_dev.jsonl", lines(SNLI))
    assert there("snli-ve", tmp_path) == ["flickr30k/snli_ve_dev.jsonl"]
    saved(tmp_path, "flickr30k/images/9.jpg", picture())
    assert there("snli-ve", tmp_path) == ["flickr30k/images", "flickr30k/snli_ve_dev.jsonl"]


def test_a_file_of_the_same_name_in_another_folder_is_not_taken(tmp_path: Path) -> None:
    saved(tmp_path, "aa/train.jsonl", lines([{"id": 1, "img": "1.jpg", "text": "a", "label": 0}]))
    vcr(tmp_path / "vcr")
    assert there("vcr", tmp_path) == ["vcr/train.jsonl", "vcr/vcr1images"]
    saved(tmp_path, "cc12m/train/00000.tar", b"")
    assert there("cc3m", tmp_path) == ["."]


def test_the_files_of_a_set_may_be_in_folders_of_their_kinds(tmp_path: Path) -> None:
    for name in (
        "Questions/v2_OpenEnded_mscoco_val2014_questions.json",
        "Annotations/v2_mscoco_val2014_annotations.json",
    ):
        saved(tmp_path, name, {})
    saved(tmp_path, "coco/val2014/1.jpg", picture())
    saved(tmp_path, "coco/dataset_coco.json", {})
    assert len(there("vqa2", tmp_path)) == 3
    assert there("coco", tmp_path) == ["coco", "coco/dataset_coco.json"]


def coco(folder: Path, splits: list[str | None]) -> Path:
    images = [{"id": n, "file_name": f"{n}.jpg"} | ({"split": s} if s else {}) for n, s in enumerate(splits)]
    notes = [{"id": n, "image_id": n, "caption": f"a dog {n}"} for n in range(len(splits))]
    for image in images:
        saved(folder, str(image["file_name"]), picture())
    return saved(folder, "refs.json", {"images": images, "annotations": notes})


@pytest.mark.parametrize("split", ["validation", "dev", " Val"])
def test_from_coco_gives_splits_the_names_that_the_command_line_gives(split: str, tmp_path: Path) -> None:
    file = coco(tmp_path, [None, split])
    with pytest.warns(UserWarning, match="read as 'val'") as warned:
        made, other = (Dataset.from_coco(file, tmp_path, split=split), Dataset.read(file, tmp_path, split=split))
    assert made.splits == other.splits == {"val": 2}
    assert not [one for one in warned if "not with split=" in str(one.message)]


@pytest.mark.parametrize("others", [["train", "val"], ["val"]])
def test_restval_of_a_coco_file_or_of_lines_is_train(others: list[str], tmp_path: Path) -> None:
    skips = Skips()
    splits = Counter(one.split for one in read(coco(tmp_path, [*others, "restval"]), skips=skips))
    assert splits == {"val": 1, "train": len(others)}
    assert "images of the split 'restval' (read as 'train'): 1" in str(skips)
    rows = [{"image": f"{n}.jpg", "captions": ["a dog"], "split": s} for n, s in enumerate([*others, "restval"])]
    assert Counter(one.split for one in read(saved(tmp_path, "own.jsonl", lines(rows)))) == splits


def results(folder: Path, more: str) -> tuple[Path, Path]:
    notes = [{"image_id": n, "caption": f"a {word} dog runs by"} for n, word in enumerate(("red", "big", "old"))]
    written = saved(folder, "results.json", notes)
    return written, saved(folder, "refs.json", {"annotations": [*notes, *notes, {"image_id": 1, "caption": more}]})


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_reference_is_left_out_of_scores_and_counted(empty: str, tmp_path: Path) -> None:
    written, references = results(tmp_path, empty)
    scored = score_file(written, references, training=references)
    whole = saved(tmp_path, "whole.json", {"annotations": json.loads(references.read_text())["annotations"][:-1]})
    assert scored.scores == score_file(written, whole, training=whole).scores
    assert "empty references (left out): 2" in "; ".join(scored.notes)
    saved(tmp_path, "only.json", {"annotations": [{"image_id": 7, "caption": empty}]})
    with pytest.raises(DataError, match="an image has no reference caption; add a caption"):
        score_file(written, tmp_path / "only.json")


def test_the_first_results_are_in_the_order_that_the_rank_counts() -> None:
    gallery = RetrievalGallery.of([Record(f"p{n}", captions=(f"dog {n}",), caption_ids=(str(n),)) for n in range(4)])
    for one in rankings(gallery, np.zeros((4, 4), np.float32)):
        own = one["picture"] if one["asks"] == "pictures" else f"{one['picture']}#0"
        assert one["first"].index(own) == one["rank"] == 3
        assert one.get("first_ids", [own[1]])[-1] == one["picture"][1]


def two_sets(folder: Path, first: str | None, second: str | None, name: str = "1.jpg") -> list[tuple[str, int]]:
    """The keys of two sets with an image of this name, and the number of their captions."""
    parts: list[dict[str, Any]] = []
    for word, images in (("dog", first), ("cat", second)):
        notes = {"images": [{"id": 1, "file_name": name}], "annotations": [{"image_id": 1, "caption": f"a {word}"}]}
        saved(folder, f"{word}.json", notes)
        parts.append({"captions": f"{word}.json", "split": "train"} | ({"images": images} if images else {}))
    file = saved(folder, "set.json", {"sets": parts})
    return [(one.key, len(one.captions)) for one in read(file, need_pictures=False)]


@pytest.mark.parametrize("there", [(), ("A",), ("B",), ("A", "B")])
def test_images_of_two_folders_are_two_also_without_files(there: tuple[str, ...], tmp_path: Path) -> None:
    for folder in there:
        saved(tmp_path, f"{folder}/1.jpg", picture())
    assert two_sets(tmp_path, "A", "B") == [("1", 1), ("B/1", 1)]


@pytest.mark.parametrize(("first", "second", "name"), [
    ("A", "A", "1.jpg"), ("A", "./A/", "1.jpg"), (None, None, "1.jpg"), (None, "A", "1.jpg"), ("A", "A/x", "1.jpg"),
    ("A", "B", "COCO_val2014_000000000001.jpg"),
])  # fmt: skip
def test_an_image_without_a_file_is_one_if_its_folder_may_be(
    first: str | None, second: str | None, name: str, tmp_path: Path
) -> None:
    assert two_sets(tmp_path, first, second, name) == [(name[:-4], 2)]


METADATA = [
    (
        {"text": "ocr words", "caption": "a dog"},
        ("ocr words",),
        "'text' and other texts in 'caption' (read: 'text'): 1",
    ),
    ({"text": "", "caption": "a cat"}, ("a cat",), ""),
    ({"text": None, "sentence": ["a cat", "two cats"]}, ("a cat", "two cats"), ""),
    ({"text": "a cat", "caption": ["a cat"]}, ("a cat",), ""),
    ({"text": "a cat", "question": "what?"}, ("a cat",), "rows with 'question' (only captions are read): 1"),
    ({"text": "a cat", "objects": {"bbox": [[1, 2, 3, 4]]}, "answers": []}, ("a cat",), "rows with 'objects'"),
]


@pytest.mark.parametrize(("row", "captions", "note"), METADATA)
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_metadata_gives_the_first_texts_and_names_the_others(
    row: dict[str, Any], captions: tuple[str, ...], note: str, ending: str, tmp_path: Path
) -> None:
    saved(tmp_path, "1.jpg", picture())
    row = {"file_name": "1.jpg"} | row
    table = pd.DataFrame({name: [json.dumps(one) if isinstance(one, list) else one] for name, one in row.items()})
    text = table.to_csv(index=False) if ending == "csv" else lines([row])
    skips = Skips()
    file = saved(tmp_path, f"metadata.{ending}", text)
    assert [one.captions for one in read(file, skips=skips)] == [captions]
    assert note in str(skips)
    assert skips.counts if note else not skips.counts


TABLES = {
    "lists": 'image,caption\n3.jpg,"[""x y"", ""z w""]"\n',
    "other order": "caption,image\nx y,3.jpg\nz w,3.jpg\n",
    "split": 'Image,Caption,Split\n3.jpg,x y,validation\n3.jpg,"z w",\n',
    "tabs": "split\timage\tcaption\nval\t3.jpg\tx y\nval\t3.jpg\tz w\n",
    "plural": "image,captions\n3.jpg,\"['x y', 'z w']\"\n",
    "the index of pandas, tabs": "\timage\tcaption\tsplit\n0\t3.jpg\tx y\tval\n1\t3.jpg\tz w\t\n",
    "file": "File,caption\n3.jpg,x y\n3.jpg,z w\n",
    "the index of pandas": ",image,caption\n0,3.jpg,x y\n1,3.jpg,z w\n",
    "first not empty": "image,caption,captions\n3.jpg,,\"['x y', 'z w']\"\n",
}


@pytest.mark.parametrize("which", TABLES)
@pytest.mark.parametrize("name", ["b.csv", "b.tsv", "captions.txt"])
def test_a_table_of_images_and_captions_is_read_by_its_columns(which: str, name: str, tmp_path: Path) -> None:
    saved(tmp_path, "3.jpg", picture())
    skips = Skips()
    (one,) = read(saved(tmp_path, name, TABLES[which]), skips=skips)
    assert (one.key, one.captions) == ("3.jpg", ("x y", "z w"))
    assert one.split == "val" or "plit" not in TABLES[which]
    if which != "split":
        assert not skips.counts


@pytest.mark.parametrize("between", [",", "\t"])
def test_a_caption_of_two_lines_is_read(between: str, tmp_path: Path) -> None:
    for number in (1, 2):
        saved(tmp_path, f"{number}.jpg", picture())
    captions = ["a dog\nand a cat, asleep", 'a "big" cat', "line\n\nline", "a cup"]
    table = pd.DataFrame({"image": ["1.jpg", "1.jpg", "2.jpg", "2.jpg"], "caption": captions})
    skips = Skips()
    first, second = read(saved(tmp_path, "b.csv", table.to_csv(index=False, sep=between)), skips=skips)
    assert [*first.captions, *second.captions] == captions
    assert not skips.counts


def test_quotes_between_tabs_do_not_join_rows(tmp_path: Path) -> None:
    for number in (1, 2):
        saved(tmp_path, f"{number}.jpg", picture())
    text = 'image\tcaption\n1.jpg\t"an open quote\n2.jpg\tthe end"\n'
    assert [one.captions for one in read(saved(tmp_path, "b.tsv", text))] == [('"an open quote',), ('the end"',)]


def test_a_table_names_what_it_does_not_read(tmp_path: Path) -> None:
    saved(tmp_path, "1.jpg", picture())
    skips = Skips()
    text = "image,caption,captions,width,split\n1.jpg,a,b,100,train\n1.jpg,c,,100,Train\n1.jpg,e,,100,test\n"
    (one,) = read(saved(tmp_path, "b.csv", text), skips=skips)
    assert one.captions == ("a", "c")
    for note in ("columns 'width' (not read): 1", "'caption' and other texts in 'captions'", "found `test`"):
        assert note in str(skips)


def test_a_table_of_captions_and_addresses_may_have_lists(tmp_path: Path) -> None:
    text = "caption\turl\n['a dog', 'a cat']\thttp://a.test/1.jpg\n"
    (one,) = read(saved(tmp_path, "c.tsv", text), need_pictures=False)
    assert one.captions == ("a dog", "a cat")
