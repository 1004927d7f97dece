"""Data that was read in silence as something else: now read as its author meant it, or named."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from diptych.data.formats.public import PublicLayout
from diptych.data.formats.public_set import write_set
from diptych.runtime.errors import DataError
from tests.sources.test_public import SNLI, lines, picture, refs, vcr
from tests.sources.test_readers import saved


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
