"""Training the small detector on Storybook, in small."""

from pathlib import Path

import pytest
import torch
from rich.console import Console

from diptych.runtime.errors import CheckpointError
from diptych.vision.detectors.load import load_detector
from diptych_world.book import record
from diptych_world.demo.detector import (
    DetectorRecipe,
    FasterRCNNRecipe,
    SceneBatches,
    drawn,
    scene_batch,
    storybook_shape,
    train_detector,
    truth,
)
from diptych_world.detector.detector import StorybookDetector
from diptych_world.kinds import KINDS
from diptych_world.layout import scene


def recipe(steps: int) -> DetectorRecipe:
    values = DetectorRecipe().model_dump()
    values["training"] |= {"steps": steps, "batch": 2, "checkpoint_every": 1, "precision": "fp32"}
    return DetectorRecipe.model_validate(values)


def test_batches_are_a_pure_function_of_the_step_and_never_repeat() -> None:
    batches = SceneBatches(storybook_shape(), recipe(4))
    once, again = batches.at(1, 0, 1), batches.at(1, 0, 1)
    assert torch.equal(once.squares, again.squares)
    assert torch.equal(once.boxes, again.boxes)
    keys = [key for step in range(3) for key in batches.at(step, 0, 1).keys]
    assert len(set(keys)) == 6
    assert [*batches.at(1, 0, 2).keys, *batches.at(1, 1, 2).keys] == once.keys


def test_the_truth_is_that_of_the_whole_record() -> None:
    one = scene(0, "val", 3)
    assert truth(one).objects == record(one).objects
    shape = storybook_shape()
    batch = scene_batch(shape, [one])
    assert [shape.kinds[k] for k in batch.kinds[0].tolist()] == [figure.kind for figure in one.figures]
    assert shape.scene["weather"][int(batch.scene["weather"])] == one.weather
    assert torch.equal(batch.squares[0], drawn(one))
    assert shape.kinds == tuple(KINDS)
    assert int((batch.attributes["colour"] < 0).sum()) == 0


@pytest.mark.slow
def test_it_trains_saves_and_goes_on(tmp_path: Path) -> None:
    console = Console(quiet=True)
    detector = train_detector(recipe(2), tmp_path / "run", console=console)
    assert load_detector(tmp_path / "run" / "detector").contract == detector.contract
    again = train_detector(recipe(2), tmp_path / "run", console=console)
    assert again.contract == detector.contract
    one = scene(0, "val", 0)
    regions = load_detector(tmp_path / "run" / "detector").detect([drawn(one)], [truth(one)])[0]
    assert regions.features is not None
    assert regions.features.shape[1] == detector.contract.feature_size
    with pytest.raises(CheckpointError, match="another recipe"):
        train_detector(recipe(3), tmp_path / "run", console=console)


@pytest.mark.slow
def test_it_may_go_on_after_a_stop(tmp_path: Path) -> None:
    """A run whose second half begins from its checkpoint ends with the same weights."""
    console = Console(quiet=True)
    whole = train_detector(recipe(2), tmp_path / "whole", console=console)
    train_detector(recipe(2), tmp_path / "cut", console=console)
    last = sorted((tmp_path / "cut" / "checkpoints").iterdir())[-1]
    last.rename(tmp_path / "gone")
    again = train_detector(recipe(2), tmp_path / "cut", console=console)
    assert isinstance(again, StorybookDetector)
    assert again.contract == whole.contract


@pytest.mark.slow
@pytest.mark.large
def test_faster_rcnn_trains_on_the_same_scenes(tmp_path: Path) -> None:
    values = FasterRCNNRecipe(architecture="fasterrcnn_mobilenet_v3_large_320_fpn", shorter=96).model_dump()
    values["training"] |= {"steps": 1, "batch": 2, "precision": "fp32", "ema": None}
    detector = train_detector(FasterRCNNRecipe.model_validate(values), tmp_path, console=Console(quiet=True))
    again = load_detector(tmp_path / "detector")
    assert again.contract == detector.contract
    assert again.contract.class_names == ("background", *KINDS)
    one = scene(0, "val", 0)
    assert len(again.detect([drawn(one)], [truth(one)])[0]) >= 1
