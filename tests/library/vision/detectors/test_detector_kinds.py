"""A kind of detector from outside: one entry of DETECTORS, and it can be asked for, imported, kept and opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.errors import RecipeError
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.load import DETECTORS, DetectorKind, load_detector
from diptych.vision.detectors.open import keep_detector, open_detector
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import write_detector


class Halves:
    """Two regions of any picture: its left and its right half."""

    needs_pictures = False
    network = None

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def from_request(cls, request: DetectorRequest) -> Halves:
        file = Path(request.name)
        request.report(f"halves of {file.name}")
        return cls(int(file.read_text()) if file.suffix == ".half" else int(request.settings["size"]))

    @classmethod
    def from_folder(cls, _: Path, described: Mapping[str, Any]) -> Halves:
        return cls(described["size"])

    @property
    def contract(self) -> FeatureContract:
        return FeatureContract("halves", weights="", feature_size=self.size)

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        boxes = torch.tensor([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
        return [Regions(boxes, torch.ones(2), (2, 1), features=torch.zeros(2, self.size)) for _ in records]

    def save(self, folder: Path) -> None:
        write_detector(folder, {"kind": "halves", "size": self.size})


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = DetectorKind(f"{__name__}:Halves", names={"halves:*": ("--set",)}, files={"*.half": ()})
    monkeypatch.setitem(DETECTORS, "halves", kind)


def test_it_is_asked_for_by_its_name_and_takes_its_own_options(tmp_path: Path) -> None:
    found = open_detector("halves:x", settings=["size=3"])
    assert found.contract.feature_size == 3
    with pytest.raises(RecipeError, match="--backbone does not apply to --detector halves:x; leave it out"):
        open_detector("halves:x", settings=["size=3"], backbone="resnet18")
    with pytest.raises(RecipeError, match=r"no detector 'half:x'; expected .* grid:NAME, .* halves:NAME"):
        open_detector("half:x")
    found.save(tmp_path / "kept")
    assert load_detector(tmp_path / "kept").contract == found.contract


def test_its_file_is_imported_before_those_that_any_kind_may_hold(tmp_path: Path) -> None:
    (tmp_path / "a.half").write_text("5")
    lines = keep_detector(str(tmp_path / "a.half"), tmp_path / "out")
    assert lines == ["halves of a.half", "halves: all; 5 values a region, no classes"]
    assert open_detector(str(tmp_path / "out")).contract.feature_size == 5
    with pytest.raises(RecipeError, match="no detector"):  # a file is imported first
        open_detector(str(tmp_path / "a.half"))
