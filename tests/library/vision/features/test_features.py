"""Feature files in the layouts in which they are published, and every way in which one can be wrong."""

# ruff: noqa: E501  a table is read by its columns

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diptych.core import Record, Regions
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.load import load_detector
from diptych.vision.features import raw
from diptych.vision.features.files import open_features
from tests.support.feature_files import BUTD, FILES, IDS, TRUTH, UNITER, VLP, features_of, read, size_of

CC = ("00000000", "00000001")  # how Conceptual Captions names the same two
HALF = 2e-3  # what half precision costs


def held_to_truth(regions: Regions, name: str, within: float, probs: bool, order: list[int]) -> None:
    """Row by row, where the format's order is `order` of the truth's rows."""
    assert regions.features is not None
    np.testing.assert_allclose(regions.features.numpy(), TRUTH[f"{name}.features"][order], atol=within)
    width, height = size_of(name)
    np.testing.assert_allclose(
        regions.boxes.numpy() * [width, height, width, height], TRUTH[f"{name}.boxes"][order], atol=within * 60 + 1e-4
    )
    if probs:
        assert regions.classes is not None
        np.testing.assert_allclose(regions.classes.numpy(), TRUTH[f"{name}.probs"][order], atol=within)
    assert (regions.classes is not None) == probs
    assert regions.size == (width, height)


# path, tolerance, has probabilities, has the picture's size
LAYOUTS = [
    (BUTD, 0, False, True), ("lxmert_tsv", 0, False, True), (VLP, 0, True, False), ("vlp_h5_float16", HALF, True, False),
    ("vlp_npy", 0, True, False), ("vl_bert_json", 0, False, True), ("vl_bert_json/val2014_resnet101_faster_rcnn_genome", 0, False, True),
    ("vl_bert_json/val2014_resnet101_faster_rcnn_genome.zip", 0, False, True), ("xmodaler_npz", 0, True, True),
    ("milvlg_npz", 0, False, True), ("mmf/npy", 0, True, True), ("mmf/detectron.lmdb", 0, True, True), ("hf_datasets", 1e-6, False, False),
    ("mmf/detectron.lmdb/data.mdb", 0, True, True), ("hf_datasets/lxmert.arrow", 1e-6, False, False),
    (f"{BUTD}/trainval_resnet101_faster_rcnn_genome.tsv", 0, False, True),
    (f"{VLP}/coco_detection_vg_thresh0.2_feat_gvd_checkpoint_trainvaltest.h5", 0, True, False),
]  # fmt: skip


@pytest.mark.parametrize(("path", "within", "probs", "sized"), LAYOUTS, ids=[row[0] for row in LAYOUTS])
@pytest.mark.parametrize("name", IDS)
def test_each_layout_gives_the_truth_in_its_own_order(
    path: str, within: float, probs: bool, sized: bool, name: str
) -> None:
    rows = list(range(len(TRUTH[f"{name}.boxes"])))
    regions = read(FILES / path, name, None if sized else size_of(name))
    held_to_truth(regions, name, within, probs, rows)


@pytest.mark.parametrize(
    "path", ["uniter/npz", UNITER, f"{UNITER}/feat_th0.2_max100_min2", f"{UNITER}/feat_th0.2_max100_min2_compressed"]
)
@pytest.mark.parametrize("name", IDS)
def test_uniter_has_fractions_best_first_and_perhaps_fewer(path: str, name: str) -> None:
    regions = read(FILES / path, name, size_of(name))
    found = np.abs(features_of(regions)[:, None] - TRUTH[f"{name}.features"][None]).sum(-1).argmin(1).tolist()
    assert len(set(found)) == len(found)
    held_to_truth(regions, name, HALF, True, found)
    assert regions.scores.tolist() == sorted(regions.scores.tolist(), reverse=True)
    wanted = json.loads((FILES / UNITER / "nbb_th0.2_max100_min2.json").read_text())[f"{name.lower()}.npz"]
    assert len(regions) == (wanted if path != "uniter/npz" else len(TRUTH[f"{name}.boxes"]))


@pytest.mark.parametrize(("name", "key"), list(zip(IDS, CC, strict=True)))
def test_vl_bert_sorts_conceptual_captions_by_the_largest_probability(name: str, key: str) -> None:
    order = np.argsort(-TRUTH[f"{name}.probs"].max(1), kind="stable").tolist()
    for path in ("val_frcnn.zip", "val_frcnn.json"):  # the lines name the zip
        held_to_truth(read(FILES / "vl_bert_json" / path, key), name, 0, True, order)


@pytest.mark.parametrize(
    "key",
    [
        "42",
        "COCO_train2014_000000000042",
        "val2014/COCO_val2014_000000000042.jpg",
        "coco_val2014_000000000042",
        "000000000042",
    ],
)
@pytest.mark.parametrize("path", ["xmodaler_npz", "milvlg_npz", BUTD, VLP])
def test_a_picture_is_found_by_whatever_name_it_has(path: str, key: str) -> None:
    assert len(read(FILES / path, key, (64, 48))) == 5


@pytest.mark.parametrize("key", ["43", "dog_42", "COCO_val2014_000000000142", ""])
def test_another_picture_is_not(key: str) -> None:
    with pytest.raises(DataError, match=r"no name matches an image; the first names are 42, 139"):
        read(FILES / BUTD, key)


def test_features_alone_want_boxes_to_be_whole_pictures(tmp_path: Path) -> None:
    path = FILES / "xmodaler_npz_features_only"
    with pytest.raises(DataError, match=r"42.npz: found features without boxes, .*--boxes whole"):
        read(path, "42", (64, 48))
    record = Record(IDS[0], size=(64, 48))
    detector = GivenRegions.of(path, [record], whole_boxes=True)
    (regions,) = detector.detect([], [record])
    assert regions.boxes.tolist() == [[0, 0, 1, 1]] * 5
    np.testing.assert_array_equal(features_of(regions), TRUTH[f"{IDS[0]}.features"])
    assert detector.contract.selection != "all"
    detector.save(tmp_path)
    assert load_detector(tmp_path).contract == detector.contract


def test_a_size_that_is_nowhere_is_read_off_the_picture(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found boxes in pixels without the size of the image, .*--images FOLDER"):
        read(FILES / VLP, IDS[0])
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    record = Record(IDS[0], image=tmp_path / "a.png")
    (regions,) = GivenRegions.of(FILES / VLP, [record]).detect([], [record])
    assert regions.size == (64, 48)


def test_what_is_there_twice_and_what_fits_no_picture_is_said(tmp_path: Path) -> None:
    files = open_features(FILES / UNITER)
    assert ["_compressed has the same names as" in note for note in files.notes] == [True]
    assert open_features(FILES / "mmf").notes == [
        f"{FILES / 'mmf'} also has 2 files or rows of LMDB, which are not read"
    ]
    table = (FILES / BUTD / "trainval_resnet101_faster_rcnn_genome.tsv").read_bytes()
    (tmp_path / "a.tsv.0").write_bytes(table + table.splitlines(keepends=True)[0])
    (tmp_path / "a.tsv.1").write_bytes(table.replace(b"139\t", b"140\t", 1))
    files = open_features(tmp_path)
    assert [note.partition(": ")[2] for note in files.notes] == [
        "1 names occur twice, such as 42: the first entry that is not cut short is read"
    ] * 2
    assert len(list(files.matching([Record("42"), Record("9")]))) == 1
    assert files.notes[-1] == f"2 of 3 features in {tmp_path} match none of the images"
    (tmp_path / "both").mkdir()
    for name in ("train", "val"):
        shutil.copytree(FILES / "xmodaler_npz", tmp_path / "both" / name)
    with pytest.raises(DataError, match=r"several features in .*both match '42'"):
        open_features(tmp_path / "both").of(Record("42"))
    assert open_features(tmp_path / "both").of(Record("val/42.jpg")).name == "val/42"


@pytest.mark.parametrize(("path", "key"), [("hostile/mmf_evil.lmdb", "a"), ("hostile", "a")])
def test_hostile_pickles_are_refused(path: str, key: str) -> None:
    with pytest.raises(
        DataError, match=r"mmf_evil.lmdb, a: found a pickle that calls os.getenv, .* no code of it was run"
    ):
        read(FILES / path, key)


def test_nothing_there_and_a_library_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"found nothing at .*none, expected features: npz"):
        open_features(tmp_path / "none")
    with pytest.raises(DataError, match=r"found no features in .* \(an empty folder\), expected npz"):
        open_features(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"\(1 .txt\), expected npz"):
        open_features(tmp_path)

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(raw.importlib, "import_module", absent)
    for path, library in ((VLP, "h5py"), (UNITER, "lmdb"), ("hf_datasets", "pyarrow")):
        with pytest.raises(
            RecipeError,
            match=rf"needs {library}.*, of the extra `features`: `uv ",
        ):
            open_features(FILES / path)
