"""One odd file is that file's trouble: it is counted and named, the others are read, and names print on one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from diptych.cli import run_verb
from diptych.core import Record
from diptych.data.check import check
from diptych.data.extract.extract import extract
from diptych.data.formats.table import read
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych.vision.image_files import open_pixels
from diptych.vision.pictures import open_picture
from tests.journeys.conftest import Result, drawn_pictures

ODD = {"latin": b"caf\xe9.png", "lines": "two\nlines\u2028three.png".encode(), "markup": b"[red]x.png"}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in (b"good.png", *ODD.values()):
        Image.new("RGB", (16, 16), "red").save(os.fsdecode(os.fsencode(folder) + b"/" + name))
    return folder


class Looks(GroundTruth):
    needs_pictures = True
    network = None


def test_a_folder_with_odd_names_is_checked_and_extracted(pictures: Path, tmp_path: Path) -> None:
    records = read(pictures)
    assert sorted(record.key for record in records)[1] == "caf\\xe9.png"
    assert check(records).coverage["picture"] == 100
    done = extract(records, Looks(("dog",), {}), tmp_path / "store")
    assert (done.written, done.failed) == (4, {})
    assert {record.image for record in records} == {Store(tmp_path / "store").words(i).image for i in range(4)}


def test_odd_names_are_told_on_one_line_in_any_encoding(pictures: Path) -> None:
    for name in ODD.values():
        Path(os.fsdecode(os.fsencode(pictures) + b"/" + name)).write_bytes(b"no picture")
    result = subprocess.run(
        [sys.executable, "-m", "diptych.cli", "check", str(pictures)],  # an interpreter: encodings
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr
    assert b"fault of Diptych" not in result.stderr
    assert rb"two\nlines\u2028three.png" in result.stdout.replace(rb"\\", b"\\")
    assert b"[red]x.png" in result.stdout


@pytest.mark.parametrize("error", [TypeError, OverflowError, KeyError, MemoryError, RuntimeError, IndexError])
def test_whatever_a_picture_reader_raises_is_that_records(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    whole = PngImageFile.load

    def odd(image: PngImageFile) -> object:
        name = vars(image).setdefault("opened_as", str(getattr(image.fp, "name", "")))  # `fp` is gone once it is loaded
        if "good" not in name:
            raise error("odd")
        return whole(image)

    monkeypatch.setattr(PngImageFile, "load", odd)
    monkeypatch.setattr("diptych.data.extract.extract.shared_decoders", lambda: SimpleNamespace(open=open_pixels))
    with pytest.raises(DataError, match="cannot read the image"):
        open_picture(pictures / "[red]x.png")
    done = extract(read(pictures), Looks(("dog",), {}), tmp_path / "store")
    assert done.written == 1
    assert len(done.failed) == 3
    lines = (tmp_path / "store" / "failures.jsonl").read_text("ascii").splitlines()
    assert {json.loads(line)["key"] for line in lines} == set(done.failed)


def test_odd_npz_do_not_stop_the_others(tmp_path: Path) -> None:
    """Headers that numpy's parser answers with TokenError, SyntaxError, TypeError; and a stream that lzma refuses."""
    folder = tmp_path / "features"
    folder.mkdir()
    records = [Record(f"{number}", size=(10, 10)) for number in range(6)]
    arrays = {"features": np.ones((2, 4), np.float32), "boxes": np.array([[0, 0, 5, 5]] * 2), "width": 10, "height": 10}
    for record in records:
        np.savez(folder / f"{record.key}.npz", **arrays)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }"
    for number, other in enumerate((b"{'descr': '''<f4", b"{'descr': '<f4'\n   x", b"{['']: 1}", b"(" * 50), start=1):
        path = folder / f"{number}.npz"
        content = path.read_bytes()
        path.write_bytes(content.replace(header, other.ljust(len(header)), 1))
    path = folder / "5.npz"
    content = bytearray(path.read_bytes())
    for at in (i for i in range(len(content)) if content[i : i + 4] in (b"PK\x03\x04", b"PK\x01\x02")):
        content[at + (8 if content[at + 2] == 3 else 10)] = 14  # of LZMA
    path.write_bytes(content)
    detector: Detector = GivenRegions.of(folder, records)
    done = extract(records, detector, tmp_path / "store")
    assert (done.written, set(done.failed)) == (1, set("12345"))


@pytest.mark.timeout(60)
def test_a_pipe_and_a_device_are_no_pictures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "zero.png"):
        with pytest.raises(DataError, match="is a pipe, a device or a socket"):
            open_picture(tmp_path / name)


@pytest.mark.parametrize("size", ["-4", "0", str(10**18)])
def test_a_vocabulary_of_no_possible_size_is_refused(tmp_path: Path, size: str) -> None:
    (tmp_path / "text").write_text("a dog")
    assert (
        run_verb(
            ["tokenizer", "train", "--out", str(tmp_path / "out"), "--text", str(tmp_path / "text"), "--size", size],
            False,
        )
        == 2
    )
    assert not (tmp_path / "out").exists()


def test_extract_takes_a_device_by_name(with_detector: Path, run: Callable[..., Result], tmp_path: Path) -> None:
    pictures = drawn_pictures(tmp_path, 3)
    for device in ("auto", "cpu"):
        done = run("extract", pictures, "--out", tmp_path / device, "--detector", with_detector, "--device", device)
        assert (done.code, done.out.split(";")[0]) == (0, "3 extracted")
    one, other = (Store(tmp_path / device) for device in ("auto", "cpu"))
    assert all(torch.equal(one.record(i).regions.features, other.record(i).regions.features) for i in range(3))  # type: ignore[union-attr,arg-type]
    refused = run("extract", pictures, "--out", tmp_path / "none", "--detector", with_detector, "--device", "cuda:99")
    assert refused.code == 2
    assert "--device: found 'cuda:99', but " in refused.error
    assert not (tmp_path / "none" / "store.json").exists()
