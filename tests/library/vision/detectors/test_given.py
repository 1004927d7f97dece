"""Regions from npz: the contract, the names of files, and whatever bytes there are."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.core import Record, Regions
from diptych.runtime.errors import DataError
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.load import load_detector


def write(path: Path, count: int = 3, **changes: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    corners = np.array([[0, 0, 50, 25]] * count)
    arrays = {"features": np.ones((count, 4)), "boxes": corners, "width": 100, "height": 50} | changes
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def detect(folder: Path, key: str = "a.jpg") -> Regions:
    record = Record(key)
    return GivenRegions.of(folder, [record]).detect([], [record])[0]


def test_boxes_become_fractions_and_regions_come_best_first(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", scores=np.array([0.1, 0.9, 0.5]), features=np.arange(12).reshape(3, 4))
    regions = detect(tmp_path)
    assert regions.boxes.tolist() == [[0, 0, 0.5, 0.5]] * 3
    assert regions.features is not None
    assert regions.features[:, 0].tolist() == [4, 8, 0]
    assert regions.size == (100, 50)
    assert regions.classes is None


@pytest.mark.parametrize("name", ["photos/a.npz", "photos/a.jpg.npz", "a.npz", "a.jpg.npz"])
def test_the_file_of_a_picture(name: str, tmp_path: Path) -> None:
    write(tmp_path / name)
    assert len(detect(tmp_path, "photos/a.jpg")) == 3


@pytest.mark.parametrize("key", ["../a.jpg", "/etc/a.jpg", ".", "", "a" * 5000, "a\0b", "none"])
def test_no_name_leads_out_of_the_folder(key: str, tmp_path: Path) -> None:
    write(tmp_path / "a.npz")
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(DataError, match=r"found no|expected"):
        detect(inside, key)


def test_eyes_of_a_model_know_what_features_must_be_like(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", classes=np.ones((3, 2)) / 2)
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    detector = GivenRegions.of(tmp_path, [Record("a")])
    detector.save(tmp_path / "detector")
    again = load_detector(tmp_path / "detector")
    assert again.contract == detector.contract
    assert again.contract.class_names == ("dog", "cat")
    with pytest.raises(DataError, match="--features PATH"):
        again.detect([], [Record("a")])


def test_any_bytes_are_read_or_refused_by_name(tmp_path: Path) -> None:
    """A thousand files with some bytes changed, cut out or put in."""
    path = write(tmp_path / "a.npz", scores=np.array([0.1, 0.9, 0.5]))
    whole, drawn, refused = path.read_bytes(), random.Random(0), 0
    detector = GivenRegions.of(tmp_path, [Record("a")])
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            place = drawn.randrange(len(content))
            match drawn.randrange(3):
                case 0:
                    content[place] = drawn.randrange(256)
                case 1:
                    del content[place : place + drawn.randint(1, 40)]
                case 2:
                    content[place:place] = drawn.randbytes(drawn.randint(1, 8))
        path.write_bytes(bytes(content))
        try:
            detector.detect([], [Record("a")])
        except DataError as error:
            assert re.search(r"a\.npz: (found|not a readable npz file \()", str(error))  # noqa: PT017
            refused += 1
    assert refused > 500


def test_half_precision_is_read_without_a_warning_and_missing_names_are_said(tmp_path: Path) -> None:
    half = {"features": np.full((3, 4), 60000), "boxes": np.array([[0, 0, 50, 25]] * 3), "scores": np.ones(3),
            "classes": np.full((3, 2), 0.9), "width": np.array(100), "height": np.array(50)}  # fmt: skip
    write(tmp_path / "a.npz", **{name: array.astype(np.float16) for name, array in half.items()})
    given = GivenRegions.of(tmp_path, [Record("a.jpg")])
    (regions,) = given.detect([], [Record("a.jpg")])
    assert regions.features is not None
    assert regions.features.max() == 60000
    assert [note for note in given.files.notes if "classes.txt, so the 2 classes are named class 0" in note]
    (tmp_path / "classes.txt").write_text("dog\nkite\n")
    assert not GivenRegions.of(tmp_path, [Record("a.jpg")]).files.notes


def test_features_of_an_image_before_it_was_turned_are_refused(tmp_path: Path) -> None:
    """Boxes for its sides as stored, and a viewer shows it upright: they would be elsewhere."""
    write(tmp_path / "features/a.npz")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (100, 50)).save(tmp_path / "a.jpg", exif=turned)
    record = Record("a.jpg", image=tmp_path / "a.jpg")
    with pytest.raises(
        DataError, match=r"an image of 100 x 50 pixels, expected features of 'a.jpg', which has 50 x 100"
    ):
        GivenRegions.of(tmp_path / "features", [record])


@pytest.mark.parametrize("side", [40, 512])
def test_square_sizes_of_an_image_that_is_not_square_are_refused(tmp_path: Path, side: int) -> None:
    """Squashed before detection, or of another image; only MMF's files are known to repeat one side."""
    write(tmp_path / "a.npz", boxes=np.array([[0, 0, 40, 40]] * 3), width=side, height=side)
    with pytest.raises(
        DataError, match=f"an image of {side} x {side} pixels, expected features of 'a', which has 60 x 40"
    ):
        GivenRegions.of(tmp_path, [Record("a", size=(60, 40))])


def test_boxes_in_fractions_of_a_detector_that_reaches_out_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", boxes=np.array([[0, 0.1, 1.05, 0.9]] * 3))
    with pytest.raises(DataError, match="which look like fractions"):
        GivenRegions.of(tmp_path, [Record("a")])
