"""Every way in which feature files can be wrong: named, with the way out, and nothing in them is run."""

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
from random import Random
from typing import Any

import h5py
import numpy as np
import pytest

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.vision.detectors.given import GivenRegions
from tests.support.databases import opened
from tests.support.feature_files import BUTD, FILES, IDS, JSON, PREFIX, VLP, copied, read


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


def joined(folder: Path) -> None:
    """The first line without its end."""
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes().replace(b"\n", b"", 1))


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
    with opened(folder) as environment, environment.begin(write=True) as held:
        held.put(b"a", b"b")
        held.delete(b"a")


def lmdb_with(**values: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with opened(folder) as environment, environment.begin(write=True) as held:
            for name, value in values.items():
                held.put(IDS[0].encode() if name == "row" else name.encode(), value)

    return write


def json_with(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for path in folder.glob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


def enlarged(folder: Path) -> None:
    """With a hole at the end, which takes no room on the disk."""
    os.truncate(folder / "42.json", 2**40)


def one_long_line(folder: Path) -> None:
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    os.truncate(path, 2**40)


def pipes(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    for ending in ("json", "npz", "tsv", "h5", "arrow"):
        os.mkfifo(folder / f"42.{ending}")


def zip_elsewhere(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        with zipfile.ZipFile(folder.with_name("own.zip"), "w") as archive:
            archive.writestr("42.json", "{}")
        frcnn = name.replace("FOLDER", str(folder.parent))
        (folder / "val_frcnn.json").write_text(json.dumps({"frcnn": f"{frcnn}@/42.json"}))

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


def later_zip(folder: Path) -> None:
    """Of version 17.7 of the format."""
    other_zip(folder)
    path = folder / "a.zip"
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 177
    path.write_bytes(content)


ONES = np.ones((5, 4))
XY = np.array([[10, 10, 20, 20]] * 5)
BAD: list[tuple[str, Callable[[Path], None], str]] = [
    (BUTD, cut, "genome.tsv, 42: found (`features` that is not base64|[0-9]+ numbers in `features`).*; download"),
    (BUTD, butd_line(end=b""), "^$"),  # a last line without its end is whole
    (BUTD, joined, "genome.tsv, 42: found a line of 11 fields, expected 6 or 10; the line may be truncated"),
    ("lxmert_tsv", joined, "obj36.tsv, COCO.*42: found a line of 19 fields, expected 6 or 10"),
    (BUTD, butd_line(count=4), r"42: found 160 numbers in `features` for 4 regions|found `boxes`|20 numbers in `boxes`|found .* regions"),
    (BUTD, butd_line(boxes=XY[:3]), "42: found 12 numbers in `boxes`, expected a multiple of 5 regions"),
    (BUTD, butd_line(features=np.ones(33)), "42: found 33 numbers in `features`, expected a multiple of 5 regions"),
    (BUTD, butd_line(boxes=ONES / 2), "42: found boxes up to 0.5, which look like fractions, expected boxes in pixels, inside the image of 64 x 48"),
    (BUTD, butd_line(boxes=XY * [1, 1, 9, 9]), r"found the box \[10.0, 10.0, 180.0, 180.0\], expected x1 y1 x2 y2 inside the image of 64 x 48 pixels; the boxes may be"),
    (BUTD, butd_line(boxes=XY[:, [2, 3, 0, 1]]), r"found the box \[20.0, 20.0, 10.0, 10.0\], expected x1 y1 x2 y2 with an area above 0"),
    (BUTD, butd_line(boxes=XY * np.nan), "`boxes` with numbers that are not finite"),
    (VLP, removed(f"feat_cls_1000/{PREFIX}_cls042.h5"), f"{PREFIX}_feat042.h5, COCO.*42: found no cls042.h5, expected it, because .*download the missing file"),
    (VLP, halved(f"feat_cls_1000/{PREFIX}_cls042.h5"), "_cls042.h5: not a readable h5 file"),
    (VLP, h5_with(f"feat_cls_1000/{PREFIX}_feat042.h5", np.ones((4, 32))), r"found `(boxes|classes)` of shape \(5, (4|21)\), expected \(4, (4|21)\)"),
    (VLP, h5_with("coco_detection_vg_thresh0.2_feat_gvd_checkpoint_trainvaltest.h5", np.ones((5, 4))), r"found boxes \(5, 4\) in .*trainvaltest.h5, expected six numbers"),
    ("xmodaler_npz", npz_with(boxes=None), "42.npz: found .*, expected also boxes"),
    ("xmodaler_npz", npz_with(features=np.ones((4, 32)), num_boxes=None), r"found `boxes` of shape \(5, 4\), expected \(4, 4\), one box per feature|`boxes` of shape .3, 4"),
    ("xmodaler_npz", npz_with(num_boxes=np.array([7])), r"found `features` \(., 32\) and `num_boxes` \[7\], expected the same number of boxes and features"),
    ("xmodaler_npz", npz_with(image_w=np.array([0])), r"`width` \[0\], expected a whole number of pixels from 1 to"),
    ("xmodaler_npz", npz_with(cls_prob=np.full((5, 21), 3.0)), r"`classes` from 3 to 3, expected 0 to 1|`classes` \(5, 21\)"),
    ("uniter/npz", npz_with(norm_bb=np.ones((5, 4))), r"`norm_bb` of shape \(5, 4\), expected seven numbers"),
    ("uniter/npz", npz_with(norm_bb=np.full((5, 7), 20.0)), "expected x1 y1 x2 y2 from 0 to 1"),
    ("mmf/npy", info_with({"bbox": XY, "x": Evil()}), "found a pickle that calls posix.mkdir, .*no code of it was run"),
    ("mmf/npy", info_with([1]), "found a pickle|ndarray instead of the regions' data"),
    ("mmf/npy", info_with({"bbox": XY, "num_boxes": 9}), "found . rows of features and `num_boxes` 9"),
    ("mmf/npy", halved(f"{IDS[0]}.npy"), "42.npy: found .* of the .* bytes of `features` .*, expected all bytes"),
    ("mmf/detectron.lmdb", emptied, "the LMDB is empty"),
    ("mmf/detectron.lmdb", lmdb_with(keys=pickle.dumps([])), "keys: found an empty list"),
    ("mmf/detectron.lmdb", lmdb_with(keys=pickle.dumps({"a": Evil()})), "keys: found a pickle that calls"),
    ("mmf/detectron.lmdb", lmdb_with(row=b"\x80\x04X"), "found no pickle that can be read"),
    ("mmf/detectron.lmdb", lmdb_with(row=b"what"), "found (bytes that are not msgpack|int without `norm_bb`)"),
    ("mmf/detectron.lmdb", halved("data.mdb"), "detectron.lmdb.*(cannot be read|not a readable|found)"),
    (JSON, json_with(boxes="%%"), "`boxes` that is not base64"),
    (JSON, json_with(num_boxes="5"), "Expected `int`, got `str` - at `..num_boxes`"),
    (JSON, json_with(num_boxes=0), "numbers in `.*`, expected a multiple of 0 regions"),
    (JSON, halved("42.json"), "42.json: found no JSON"),
    (JSON, enlarged, "42.json: found 1099511627776 bytes of `42.json`, expected at most 268435456"),
    (JSON, zip_elsewhere("../own.zip"), "val_frcnn.json, `frcnn`: found '../own.zip', expected a zip in the same folder; move it"),
    (JSON, zip_elsewhere("FOLDER/own.zip"), "val_frcnn.json, `frcnn`: found '/.*own.zip', expected a zip in the same folder"),
    pytest.param(BUTD, one_long_line, "genome.tsv, after 1 lines: found 268435457 bytes of `a line`, expected at most 268435456", marks=pytest.mark.large),
    (JSON, pipes, "found no features in .*, expected"),
    (JSON, no_zip, "a.zip: not a readable zip file"),
    (JSON, later_zip, "a.zip: not a readable zip file .zip file version 17.7."),
    (JSON, other_zip, "a.zip, 42.json: found no JSON of regions .*`num_boxes`.*, expected the keys num_boxes"),
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


@pytest.mark.parametrize("path", [BUTD, "lxmert_tsv", VLP, "vlp_npy", JSON, "xmodaler_npz", "mmf/npy", "hf_datasets"])
def test_any_bytes_are_read_or_refused(path: str, tmp_path: Path) -> None:
    """Some bytes of a file changed, put in or taken out, or its end cut off. An LMDB is mapped, and is left out."""
    whole = {file: file.read_bytes() for file in sorted(copied(path, tmp_path).rglob("*")) if file.is_file()}
    random, refused = Random(0), 0
    for _ in range(40):
        for file, content in whole.items():
            changed = bytearray(content)
            at = random.randrange(len(changed))
            changed[at : at + random.randint(0, 5)] = random.randbytes(random.randint(0, 5))
            file.write_bytes(changed if random.random() < 0.8 else changed[:at])
        try:
            read(tmp_path / Path(path).name, IDS[0], (64, 48))
        except DataError:
            refused += 1
    assert refused > 10


def test_one_wrong_line_at_the_beginning_does_not_stop_the_others(tmp_path: Path) -> None:
    """What the others must be like is told by the first that is whole."""
    folder = copied(BUTD, tmp_path)
    (path,) = folder.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    butd_line(count=4)(folder)
    path.write_bytes(path.read_bytes() + lines[1])
    records = [Record(name, size=size) for name, size in zip(IDS, ((64, 48), (50, 80)), strict=True)]
    detector = GivenRegions.of(folder, records)
    (regions,) = detector.detect([], records[1:])
    assert regions.features is not None
    assert regions.features.shape == (3, 32)
    with pytest.raises(DataError, match=r"42: found `boxes` of shape \(4, 5\), expected \(4, 4\)"):
        detector.detect([], records[:1])


def test_sizes_that_differ(tmp_path: Path) -> None:
    path = FILES / BUTD
    assert read(path, "42", (128, 96)).size == (64, 48)  # of the same picture, smaller
    with pytest.raises(
        DataError, match=r"found features of an image of 64 x 48 pixels, expected features of '42', which has 64 x 20"
    ):
        read(path, "42", (64, 20))
    folder = copied("mmf/npy", tmp_path)
    info_with({"bbox": XY, "image_width": 64, "image_height": 64})(folder)  # as MMF's own extraction slips
    assert read(folder, IDS[0], (64, 48)).size == (64, 48)
