"""A plain grid of cells."""

from pathlib import Path

import pytest
import torch

from diptych.core import Record
from diptych.errors import CheckpointError, RecipeError
from diptych.vision.grid import Grid
from diptych.vision.load import load_eyes

SQUARE = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture(scope="module")
def eyes() -> Grid:
    torch.manual_seed(0)
    return Grid.of("resnet18", side=64, cells=2)


def test_cells_in_reading_order(eyes: Grid) -> None:
    regions = eyes.see([SQUARE], [Record("a")])[0]
    assert regions.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]
    assert regions.features is not None
    assert regions.features.shape == (4, 512) == (4, eyes.contract.feature_size)
    assert regions.whole is not None
    torch.testing.assert_close(regions.whole, regions.features.mean(0))
    maps = eyes.backbone(SQUARE[None])
    torch.testing.assert_close(regions.features, maps[0].flatten(1).T)


def test_cells_beside_a_wide_picture_are_left_out(eyes: Grid) -> None:
    wide = torch.cat([SQUARE, SQUARE], 2)
    regions = eyes.see([wide], [Record("a")])[0]
    assert regions.boxes.tolist() == [[0, 0, 0.5, 1], [0.5, 0, 1, 1]]
    assert eyes.see([], []) == []


def test_it_is_the_same_after_a_save(eyes: Grid, tmp_path: Path) -> None:
    eyes.save(tmp_path)
    again = load_eyes(tmp_path)
    assert again.contract == eyes.contract
    mine, theirs = eyes.see([SQUARE], [Record("a")])[0], again.see([SQUARE], [Record("a")])[0]
    assert torch.equal(mine.features, theirs.features)  # type: ignore[arg-type]


def test_other_backbones() -> None:
    assert Grid.of("mobilenet_v3_small", side=64, cells=2).contract.feature_size == 576
    with pytest.raises(RecipeError, match="did you mean resnet18"):
        Grid.of("resnet_18")


def test_timm_is_an_extra() -> None:
    try:
        import timm  # noqa: F401
    except ImportError:
        with pytest.raises(RecipeError, match=r"diptych\[timm\]"):
            Grid.of("timm/resnet10t")
    else:
        for name in ("timm/resnet10t", "timm/test_vit"):
            grid = Grid.of(name, side=64, cells=2)
            regions = grid.see([SQUARE], [Record("a")])[0]
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
