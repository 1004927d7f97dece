"""The verbs of the drawn world, as a user runs them."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from diptych.vision.detectors.selection import Selection
from diptych_world.demo.detector import storybook_shape
from diptych_world.detector.detector import StorybookDetector
from diptych_world.detector.network import SmallDetector
from tests.journeys.conftest import Result


def test_a_world_is_written_looked_over_and_shown(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("storybook", "write", "--out", tmp_path / "world", "--web", 4, "--train", 3, "--val", 2, "--test", 2,
               "--test-rare", 1, "--processes", 1)  # fmt: skip
    assert (result.code, "12 scenes in" in result.out) == (0, True)
    checked = run("check", tmp_path / "world", "--json")
    assert checked.code == 0, checked.out
    assert json.loads(checked.out)["ok"]
    run("storybook", "show", "--out", tmp_path / "truth.png", "--count", 2)
    with Image.open(tmp_path / "truth.png") as sheet:
        assert sheet.size[0] > 600


def test_a_test_web_of_other_pages_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    command = ("storybook", "web", "--out", tmp_path / "web", "--pages", 3, "--processes", 1)
    assert "3 pages in" in run(*command).out
    assert "has 3 pages of seed 0 already" in run(*command).out
    for other in (("--seed", 1), ("--pages", 4)):
        refused = run(*command, *other)
        assert refused.code == 2
        assert "holds another test web:" in refused.error


def test_what_a_detector_finds_is_shown_instead(run: Callable[..., Result], tmp_path: Path) -> None:
    torch.manual_seed(0)
    detector = StorybookDetector(SmallDetector(storybook_shape()), Selection(most=4, least=4))
    (tmp_path / "detector").mkdir()
    detector.save(tmp_path / "detector")
    result = run("storybook", "show", "--out", tmp_path / "seen.png", "--count", 2, "--detector", tmp_path / "detector")
    assert result.code == 0, result.error
    with Image.open(tmp_path / "seen.png") as sheet:
        assert sheet.size == (2 * 326 + 6, 326 + 6)


def test_an_unknown_faster_rcnn_is_refused_before_a_process_is_started(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    result = run("storybook", "detector", "--out", tmp_path / "run", "--faster-rcnn", "resnet19_fpn")
    assert result.code == 2
    assert "did you mean resnet18_fpn" in result.error
    assert not (tmp_path / "run").exists()
