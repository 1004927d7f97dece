"""Feature files in the layouts in which they are published, and every way in which one can be wrong."""

# ruff: noqa: E501  a table is read by its columns

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image

from diptych.core import Record, Regions
from diptych.errors import DataError, RecipeError
from diptych.vision.features import raw
from diptych.vision.features.files import open_features
from diptych.vision.given import Given
from diptych.vision.load import load_detector

FILES = Path(__file__).parent.parent / "data" / "region_features"
TRUTH = dict(np.load(FILES / "truth.npz"))
IDS = ("COCO_val2014_000000000042", "COCO_val2014_000000000139")
CC = ("00000000", "00000001")  # how Conceptual Captions names the same two
HALF = 2e-3  # what half precision costs
BUTD, VLP, UNITER = "butd_tsv", "vlp_h5", "uniter/coco_val2014"
PREFIX = "coco_detection_vg_100dets_vlp_checkpoint_trainval"


def size_of(name: str) -> tuple[int, int]:
    width, height = TRUTH[f"{name}.size"].tolist()
    return width, height


def read(path: Path, key: str, size: tuple[int, int] | None = None, **more: Any) -> Regions:
    record = Record(key, size=size)
    return Given.of(path, [record], **more).detect([], [record])[0]


def features_of(regions: Regions) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert regions.features is not None
    return regions.features.numpy()


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
    with pytest.raises(DataError, match=r"no name there fits a picture's; it has 42, 139"):
        read(FILES / BUTD, key)


def test_features_alone_want_boxes_to_be_whole_pictures(tmp_path: Path) -> None:
    path = FILES / "xmodaler_npz_features_only"
    with pytest.raises(DataError, match=r"42.npz: found features without boxes, .*--boxes whole"):
        read(path, "42", (64, 48))
    record = Record(IDS[0], size=(64, 48))
    detector = Given.of(path, [record], whole_boxes=True)
    (regions,) = detector.detect([], [record])
    assert regions.boxes.tolist() == [[0, 0, 1, 1]] * 5
    np.testing.assert_array_equal(features_of(regions), TRUTH[f"{IDS[0]}.features"])
    assert detector.contract.selection != "all"
    detector.save(tmp_path)
    assert load_detector(tmp_path).contract == detector.contract


def test_a_size_that_is_nowhere_is_read_off_the_picture(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"found boxes in pixels and nowhere the size of the picture, .*--pictures FOLDER"
    ):
        read(FILES / VLP, IDS[0])
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    record = Record(IDS[0], image=tmp_path / "a.png")
    (regions,) = Given.of(FILES / VLP, [record]).detect([], [record])
    assert regions.size == (64, 48)


def test_what_is_there_twice_and_what_fits_no_picture_is_said(tmp_path: Path) -> None:
    files = open_features(FILES / UNITER)
    assert ["_compressed has again what" in note for note in files.notes] == [True]
    assert open_features(FILES / "mmf").notes == [
        f"{FILES / 'mmf'} has 2 files or rows of LMDB too, which are not read"
    ]
    table = (FILES / BUTD / "trainval_resnet101_faster_rcnn_genome.tsv").read_bytes()
    (tmp_path / "a.tsv.0").write_bytes(table + table.splitlines(keepends=True)[0])
    (tmp_path / "a.tsv.1").write_bytes(table.replace(b"139\t", b"140\t", 1))
    files = open_features(tmp_path)
    assert [note.partition(": ")[2] for note in files.notes] == [
        "1 names are there twice, such as 42: the first is taken"
    ] * 2
    assert len(list(files.fitting([Record("42"), Record("9")]))) == 1
    assert files.notes[-1] == f"2 of 3 features in {tmp_path} fit none of the pictures"
    (tmp_path / "both").mkdir()
    for name in ("train", "val"):
        shutil.copytree(FILES / "xmodaler_npz", tmp_path / "both" / name)
    with pytest.raises(DataError, match=r"several features in .*both that may be those of '42'"):
        open_features(tmp_path / "both").of(Record("42"))
    assert open_features(tmp_path / "both").of(Record("val/42.jpg")).name == "val/42"


@pytest.mark.parametrize(("path", "key"), [("hostile/mmf_evil.lmdb", "a"), ("hostile", "a")])
def test_hostile_pickles_are_refused(path: str, key: str) -> None:
    with pytest.raises(
        DataError, match=r"mmf_evil.lmdb, a: found a pickle that calls os.getenv, .* nothing of it was run"
    ):
        read(FILES / path, key)


def copied(path: str, folder: Path) -> Path:
    """A writable copy, its pictures of the name 42 and 139."""
    target = folder / Path(path).name
    shutil.copytree(FILES / path, target)
    return target


def butd_line(boxes: Any = None, features: Any = None, count: int = 5, end: bytes = b"\n") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (path,) = folder.iterdir()
        fields = path.read_bytes().splitlines()[0].split(b"\t")
        fields[3] = str(count).encode()
        for place, array in ((4, boxes), (5, features)):
            if array is not None:
                fields[place] = base64.b64encode(np.asarray(array, "<f4").tobytes())
        path.write_bytes(b"\t".join(fields) + end)

    return write


def cut(folder: Path) -> None:
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:700])


def removed(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        (folder / name).unlink()

    return remove


def h5_with(name: str, array: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with h5py.File(folder / name, "a") as file:
            del file[IDS[0]]
            file[IDS[0]] = array

    return write


def halved(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return write


def npz_with(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for path in folder.glob("*.npz"):
            arrays = dict(np.load(path)) | changes
            np.savez(path, **{name: value for name, value in arrays.items() if value is not None})

    return write


def info_with(value: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for path in folder.glob("*_info.npy"):
            np.save(path, value, allow_pickle=True)

    return write


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as held:
        held.put(b"a", b"b")
        held.delete(b"a")


def lmdb_with(**values: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with lmdb.open(str(folder)) as environment, environment.begin(write=True) as held:
            for name, value in values.items():
                held.put(IDS[0].encode() if name == "row" else name.encode(), value)

    return write


def json_with(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for path in folder.glob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


def no_zip(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / "a.zip").write_bytes(b"PK no zip")


def other_zip(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("42.json", '{"a": 1}')


ONES = np.ones((5, 4))
XY = np.array([[10, 10, 20, 20]] * 5)
JSON = "vl_bert_json/val2014_resnet101_faster_rcnn_genome"
BAD: list[tuple[str, Callable[[Path], None], str]] = [
    (BUTD, cut, "genome.tsv, 42: found (`features` that is no base64|[0-9]+ numbers in `features`).*the line may be cut|get"),
    (BUTD, butd_line(end=b""), "^$"),  # a last line without its end is whole
    (BUTD, butd_line(count=4), r"42: found 160 numbers in `features` for 4 regions|found `boxes`|20 numbers in `boxes`|found .* regions"),
    (BUTD, butd_line(boxes=XY[:3]), "42: found 12 numbers in `boxes` for 5 regions, wanted as many for each"),
    (BUTD, butd_line(features=np.ones(33)), "42: found 33 numbers in `features` for 5 regions"),
    (BUTD, butd_line(boxes=ONES / 2), "42: found boxes up to 0.5, which look like fractions, wanted pixels, inside 64 x 48"),
    (BUTD, butd_line(boxes=XY * [1, 1, 9, 9]), r"found the box \[10.0, 10.0, 180.0, 180.0\], wanted x1 y1 x2 y2 inside 64 x 48 pixels; the boxes may be"),
    (BUTD, butd_line(boxes=XY[:, [2, 3, 0, 1]]), r"found the box \[20.0, 20.0, 10.0, 10.0\], wanted x1 y1 x2 y2 with an extent"),
    (BUTD, butd_line(boxes=XY * np.nan), "`boxes` with numbers that are not finite"),
    (VLP, removed(f"feat_cls_1000/{PREFIX}_cls042.h5"), f"{PREFIX}_feat042.h5, COCO.*42: found no cls042.h5 beside it, wanted it, as .*get the missing part"),
    (VLP, halved(f"feat_cls_1000/{PREFIX}_cls042.h5"), "_cls042.h5: found no h5 that can be read"),
    (VLP, h5_with(f"feat_cls_1000/{PREFIX}_feat042.h5", np.ones((4, 32))), r"found `(boxes|classes)` \(5, (4|21)\), wanted \(4, (4|21)\)"),
    (VLP, h5_with("coco_detection_vg_thresh0.2_feat_gvd_checkpoint_trainvaltest.h5", np.ones((5, 4))), r"found boxes \(5, 4\) in .*trainvaltest.h5, wanted six numbers"),
    ("xmodaler_npz", npz_with(boxes=None), "42.npz: found .*, wanted also boxes"),
    ("xmodaler_npz", npz_with(features=np.ones((4, 32)), num_boxes=None), r"found `boxes` \(5, 4\), wanted \(4, 4\), one for each of the features|`boxes` .3, 4"),
    ("xmodaler_npz", npz_with(num_boxes=np.array([7])), r"found `features` \(., 32\) and num_boxes \[7\], wanted as many of both"),
    ("xmodaler_npz", npz_with(image_w=np.array([0])), r"`width` \[0\], wanted 1 to"),
    ("xmodaler_npz", npz_with(cls_prob=np.full((5, 21), 3.0)), r"`classes` from 3 to 3, wanted 0 to 1|`classes` \(5, 21\)"),
    ("uniter/npz", npz_with(norm_bb=np.ones((5, 4))), r"`norm_bb` \(5, 4\), wanted seven numbers"),
    ("uniter/npz", npz_with(norm_bb=np.full((5, 7), 20.0)), "wanted x1 y1 x2 y2 as fractions"),
    ("mmf/npy", info_with({"bbox": XY, "x": Evil()}), "found a pickle that calls posix.mkdir, .*nothing of it was run"),
    ("mmf/npy", info_with([1]), "found a pickle|ndarray as what is told"),
    ("mmf/npy", info_with({"bbox": XY, "num_boxes": 9}), "found . rows of features and num_boxes 9"),
    ("mmf/npy", halved(f"{IDS[0]}.npy"), "42.npy: found `features` .*bytes, and .* of them, wanted it whole"),
    ("mmf/detectron.lmdb", emptied, "found an empty LMDB, wanted one with regions"),
    ("mmf/detectron.lmdb", lmdb_with(keys=pickle.dumps([])), "keys: found an empty list"),
    ("mmf/detectron.lmdb", lmdb_with(keys=pickle.dumps({"a": Evil()})), "keys: found a pickle that calls"),
    ("mmf/detectron.lmdb", lmdb_with(row=b"\x80\x04X"), "found no pickle that can be read"),
    ("mmf/detectron.lmdb", lmdb_with(row=b"what"), "found (no msgpack|int without norm_bb)"),
    ("mmf/detectron.lmdb", halved("data.mdb"), "detectron.lmdb.*(cannot be read|can be read|found)"),
    (JSON, json_with(boxes="%%"), "`boxes` that is no base64"),
    (JSON, json_with(num_boxes="5"), "`num_boxes` 5, wanted a whole number"),
    (JSON, json_with(num_boxes=0), "numbers in `.*` for 0 regions"),
    (JSON, halved("42.json"), "42.json: found no JSON"),
    (JSON, no_zip, "a.zip: found no zip that can be read"),
    (JSON, other_zip, "a.zip, 42.json: found a, wanted num_boxes"),
    ("hf_datasets", halved("lxmert.arrow"), "lxmert.arrow: found no Arrow file that can be read"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "change", "message"), BAD)
def test_what_is_wrong_is_named(
    path: str, change: Callable[[Path], None], message: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = copied(path, tmp_path)
    change(folder)
    if message == "^$":
        assert len(read(folder, IDS[0], (64, 48))) == 5
        return
    with pytest.raises(DataError, match=message):
        read(folder, IDS[0], (64, 48))
    assert not (tmp_path / "made").exists()


def test_sizes_that_differ(tmp_path: Path) -> None:
    path = FILES / BUTD
    assert read(path, "42", (128, 96)).size == (64, 48)  # of the same picture, smaller
    with pytest.raises(
        DataError, match=r"found features of a picture of 64 x 48 pixels, wanted those of '42', which has 64 x 20"
    ):
        read(path, "42", (64, 20))
    folder = copied("mmf/npy", tmp_path)
    info_with({"bbox": XY, "image_width": 64, "image_height": 64})(folder)  # as MMF's own extraction slips
    assert read(folder, IDS[0], (64, 48)).size == (64, 48)


def test_nothing_there_and_a_library_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"found nothing at .*none, wanted features: npz"):
        open_features(tmp_path / "none")
    with pytest.raises(DataError, match=r"found no features in .* \(an empty folder\), wanted npz"):
        open_features(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"\(1 .txt\), wanted npz"):
        open_features(tmp_path)

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(raw.importlib, "import_module", absent)
    for path, library in ((VLP, "h5py"), (UNITER, "lmdb"), ("hf_datasets", "pyarrow")):
        with pytest.raises(
            RecipeError,
            match=rf"is read by {library}, which is not installed; install it: pip install 'diptych\[features\]'",
        ):
            open_features(FILES / path)
