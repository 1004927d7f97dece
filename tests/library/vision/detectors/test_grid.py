"""A plain grid of cells."""

import sys
from pathlib import Path

import pytest
import torch

from diptych.core import Record
from diptych.runtime.errors import RecipeError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.grid import Grid
from diptych.vision.detectors.load import load_detector

SQUARE = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture(scope="module")
def detector() -> Grid:
    torch.manual_seed(0)
    return Grid(Backbone.of("timm/test_resnet", 64, pretrained=False), 2)


def test_cells_in_reading_order(detector: Grid) -> None:
    regions = detector.detect([SQUARE], [Record("a")])[0]
    assert regions.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]
    assert regions.features is not None
    assert regions.features.shape == (4, 96) == (4, detector.contract.feature_size)
    assert regions.whole is not None
    torch.testing.assert_close(regions.whole, regions.features.mean(0))
    maps = detector.backbone(SQUARE[None])
    torch.testing.assert_close(regions.features, maps[0].flatten(1).T)


def test_cells_beside_a_wide_picture_are_left_out(detector: Grid) -> None:
    wide = torch.cat([SQUARE, SQUARE], 2)
    regions = detector.detect([wide], [Record("a")])[0]
    assert regions.boxes.tolist() == [[0, 0, 0.5, 1], [0.5, 0, 1, 1]]
    assert detector.detect([], []) == []


def test_it_is_the_same_after_a_save(detector: Grid, tmp_path: Path) -> None:
    detector.save(tmp_path)
    again = load_detector(tmp_path)
    assert again.contract == detector.contract
    mine, theirs = detector.detect([SQUARE], [Record("a")])[0], again.detect([SQUARE], [Record("a")])[0]
    assert torch.equal(mine.features, theirs.features)  # type: ignore[arg-type]


def test_it_has_as_many_cells_as_the_map() -> None:
    assert Grid(Backbone.of("timm/test_resnet", 64, pretrained=False)).cells == 2
    assert Grid(Backbone.of("resnet18", pretrained=False)).cells == 7


def test_timm_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for library, extra in (("timm", "timm"), ("open_clip", "open-clip"), ("transformers", "transformers")):
        monkeypatch.setitem(sys.modules, library, None)
        name = "hf/a/b" if library == "transformers" else f"{library}/resnet10t"
        with pytest.raises(RecipeError, match=rf"{name} needs {library}, of the extra `{extra}`"):
            Backbone.of(name)
