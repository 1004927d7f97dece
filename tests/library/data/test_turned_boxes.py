"""Boxes on images that EXIF turns or mirrors are counted in one line by `check` and `extract`."""

import io
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from diptych.core import Object, Record
from diptych.data.check import check
from diptych.data.extract.own_data import extract_regions
from diptych.data.findings import TURNED
from diptych.vision.detectors.open import open_detector


def photo(path: Path, orientation: int) -> Path:
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.effect_noise((60, 40), 60 + orientation).convert("RGB").save(path, exif=exif)
    return path


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_images_with_boxes_that_exif_turns_are_counted(ending: str, tmp_path: Path) -> None:
    thing = Object("dog", (0.1, 0.1, 0.5, 0.5))
    records = [
        Record(f"{number}", image=photo(tmp_path / f"{number}.{ending}", number), objects=(thing,), captions=("a dog",))
        for number in range(1, 9)
    ]
    records.append(Record("bare", image=photo(tmp_path / f"bare.{ending}", 6), captions=("a dog",)))
    records.append(Record("gone", image=tmp_path / "gone.jpg", objects=(thing,), captions=("a dog",)))
    (found,) = (one for one in check(records).findings if one.kind == TURNED)
    assert (found.count, found.severity, found.examples[0]) == (7, "warning", "2")
    told = Console(file=io.StringIO(), width=200)
    extract_regions(records, open_detector("ground-truth", records), tmp_path / "store", told)
    (line,) = (one for one in told.file.getvalue().splitlines() if TURNED in one)  # type: ignore[attr-defined]
    assert line.startswith(
        f"{TURNED}: 7; right if the boxes are of the upright image; if of the stored pixels: extract --"
    )
    assert line.endswith("--stored-boxes")


def test_upright_images_and_pairs_are_passed_in_silence(tmp_path: Path) -> None:
    """Also a pair of images, as NLVR2 has."""
    for name in ("a", "b"):
        Image.new("RGB", (60, 40)).save(tmp_path / f"{name}.png")
    thing = Object("dog", (0.1, 0.1, 0.5, 0.5))
    records = [Record(name, image=tmp_path / name, objects=(thing,)) for name in ("a.png", "a.png+b.png")]
    assert not [one for one in check(records).findings if one.kind == TURNED]
