"""Features that are in a file twice, the first of them damaged: the whole one counts."""

from __future__ import annotations

import base64
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.vision.detectors.given import GivenRegions
from tests.support.databases import opened
from tests.support.feature_files import FILES, IDS, JSON

NAMES = ("101", "102", "103")


def line(name: str) -> str:
    arrays = (np.array([[1, 1, 9, 9]] * 3, "<f4"), np.full((3, 8), int(name), "<f4"))
    return "\t".join([name, "64", "48", "3", *(base64.b64encode(array.tobytes()).decode() for array in arrays)])


def found(folder: Path) -> dict[str, float | str]:
    """The first feature of each image, or why it has none."""
    records = [Record(f"{name}.png") for name in NAMES]
    detector, values = GivenRegions.of(folder, records), dict[str, float | str]()
    for record in records:
        try:
            (regions,) = detector.detect([], [record])
            assert regions.features is not None
            values[record.key] = float(regions.features[0, 0])
        except DataError as error:
            values[record.key] = str(error)
    return values


WHOLE = {f"{name}.png": float(name) for name in NAMES}


@pytest.mark.parametrize("end", [3, 12, 40, -40, -16, -4, -1])
def test_a_line_that_was_cut_and_written_again(end: int, tmp_path: Path) -> None:
    one, two, three = map(line, NAMES)
    (tmp_path / "a.tsv").write_text("\n".join([one, two[:end], two, three]))
    assert found(tmp_path) == WHOLE
    (tmp_path / "a.tsv").write_text("\n".join([one, two[:end], three, two]))
    assert found(tmp_path) == WHOLE
    (tmp_path / "a.tsv").write_text("\n".join([one, two[:end] + three, two, three]))
    assert found(tmp_path) == WHOLE, "the next line begins inside the cut one, and is there again too"
    (tmp_path / "a.tsv").write_text("\n".join([one, two[:end] + three, two]))
    assert {**found(tmp_path), "103.png": 103.0} == WHOLE
    if end > 3 or end < 0:
        assert "the line before '103.png' is truncated" in str(found(tmp_path)["103.png"])


def test_a_second_file_has_the_whole_one(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.0").write_text("\n".join([line("101"), line("102")[:-9], line("103")]))
    (tmp_path / "a.tsv.1").write_text("\n".join(map(line, NAMES)))
    assert found(tmp_path) == WHOLE


def lmdb_twice(folder: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(FILES / "mmf/detectron.lmdb", folder / name)
    with opened(folder / "a") as environment, environment.begin(write=True) as held:
        for key in [bytes(key) for key in held.cursor().iternext(values=False) if key != b"keys"]:
            held.put(key, b"\x80\x04X")


def zip_twice(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for content in ('{"num_boxes', None):
            for number in (42, 139):
                text = content or (FILES / JSON / f"{number}.json").read_text()
                archive.writestr(f"{IDS[0][:-3]}{number:03d}.json", text)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("write", [lmdb_twice, zip_twice])
def test_of_an_lmdb_and_a_zip_the_whole_one_counts(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    for key in IDS:
        record = Record(key)
        (regions,) = GivenRegions.of(tmp_path, [record]).detect([], [record])
        assert len(regions) == len(regions.boxes) > 0
