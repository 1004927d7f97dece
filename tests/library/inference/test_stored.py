"""Regions that a store has are not extracted again: `--features STORE`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import diptych
from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.inference.predictor import Predictor
from diptych.runtime.errors import DataError
from tests.support.service import make_model, picture

COLOURS = ("red", "blue", "green")


@pytest.fixture
def model(tmp_path: Path) -> Predictor:
    """A model, and a store of three photographs that were deleted after extraction, of which copies exist."""
    predictor = make_model(tmp_path)
    for folder in ("photos", "copies"):
        (tmp_path / folder).mkdir()
        for colour in COLOURS:
            (tmp_path / folder / f"{colour}.png").write_bytes(picture(colour))
    records = [Record(colour, image=tmp_path / "photos" / f"{colour}.png") for colour in COLOURS]
    extract(records, predictor.detector, tmp_path / "store")
    shutil.rmtree(tmp_path / "photos")
    return predictor


@pytest.fixture
def detected(model: Predictor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images whose regions are detected."""
    seen, kind = list[str](), type(model.detector)
    plain = kind.detect

    def detect(self: Any, pictures: Any, records: Any) -> Any:
        seen.extend(Path(record.key).name for record in records)
        return plain(self, pictures, records)

    monkeypatch.setattr(kind, "detect", detect)
    return seen


def test_only_images_that_the_store_lacks_are_detected(tmp_path: Path, model: Predictor, detected: list[str]) -> None:
    (tmp_path / "copies" / "new.png").write_bytes(picture("yellow"))
    stored = Predictor(model.folder, tmp_path / "store")
    paths = [str(tmp_path / "copies" / f"{name}.png") for name in ("green", "new", "red")]
    found = stored.extract(paths)
    assert detected == ["new.png"]
    for record, path in zip(found, paths, strict=True):
        (own,) = model.extract([path])
        assert own.regions is not None
        assert record.regions is not None
        torch.testing.assert_close(record.regions.boxes, own.regions.boxes)
        torch.testing.assert_close(record.regions.features, own.regions.features, atol=2e-3, rtol=2e-3)


def test_a_search_takes_the_regions_of_the_store(tmp_path: Path, model: Predictor, detected: list[str]) -> None:
    opened = diptych.load(model.folder.folder, features=tmp_path / "store")
    hits = opened.search("a red kite", tmp_path / "copies")
    assert (len(hits), detected) == (3, [])


def test_a_store_of_another_detector_is_refused(tmp_path: Path, model: Predictor) -> None:
    index = tmp_path / "store" / "store.json"
    index.write_text(index.read_text().replace(model.detector.contract.weights, "0" * 64))
    with pytest.raises(DataError, match="store"):
        Predictor(model.folder, tmp_path / "store").extract([tmp_path / "copies" / "red.png"])
