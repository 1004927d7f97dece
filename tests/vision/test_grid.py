"""A plain grid of cells."""

from pathlib import Path

import pytest
import torch

from diptych.core import Record
from diptych.errors import CheckpointError, RecipeError
from diptych.vision.grid import Grid
from diptych.vision.load import load_detector

SQUARE = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture(scope="module")
def detector() -> Grid:
    torch.manual_seed(0)
    return Grid.of("resnet18", side=64, cells=2)


def test_cells_in_reading_order(detector: Grid) -> None:
    regions = detector.detect([SQUARE], [Record("a")])[0]
    assert regions.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]
    assert regions.features is not None
    assert regions.features.shape == (4, 512) == (4, detector.contract.feature_size)
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


def test_other_backbones() -> None:
    assert Grid.of("mobilenet_v3_small", side=64, cells=2).contract.feature_size == 576
    with pytest.raises(RecipeError, match="did you mean resnet18"):
        Grid.of("resnet_18")


def test_timm_is_an_extra() -> None:
    try:
        import timm  # noqa: F401
    except ImportError:
        with pytest.raises(RecipeError, match="needs timm, of the extra `timm`"):
            Grid.of("timm/resnet10t")
    else:
        for name in ("timm/resnet10t", "timm/test_vit"):
            grid = Grid.of(name, side=64, cells=2)
            regions = grid.detect([SQUARE], [Record("a")])[0]
            assert len(regions) == 4
            assert regions.features is not None
            assert regions.features.shape[1] == grid.contract.feature_size


def test_without_a_network_weights_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torch.hub.download_url_to_file", offline)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"cannot download the weights of resnet18 .no network"):
        Grid.of("resnet18", pretrained=True)
