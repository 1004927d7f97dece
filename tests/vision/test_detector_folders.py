"""A detector's folder is held against the contract of the features that it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from diptych.errors import CheckpointError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detector import Detector
from diptych.vision.image_feature import WithImageFeature
from diptych.vision.selection import Selection
from diptych.vision.small_detector import DetectorConfig, SmallDetector
from diptych.vision.storybook_detector import StorybookDetector
from diptych.vision.weights import check_detector


@pytest.fixture(scope="module")
def small() -> StorybookDetector:
    shape = DetectorConfig(kinds=("square",), side=64, feature_size=16, widths=(24, 24, 24))
    return StorybookDetector(SmallDetector(shape), Selection(most=3, least=3))


@pytest.mark.parametrize("whole", [False, True])
def test_every_file_is_held_against_the_contract(small: StorybookDetector, whole: bool, tmp_path: Path) -> None:
    detector: Detector = WithImageFeature(small, Backbone.of("resnet18", 32, pretrained=False)) if whole else small
    detector.save(tmp_path)
    check_detector(tmp_path, detector.contract.weights)
    with pytest.raises(CheckpointError, match="another detector than the one"):
        check_detector(tmp_path, "0" * 64, files=False)
    for path in sorted(tmp_path.rglob("*.safetensors")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(CheckpointError, match="copy the whole folder again"):
            check_detector(tmp_path, detector.contract.weights)
        path.unlink()
        with pytest.raises(CheckpointError, match="cannot read"):
            check_detector(tmp_path, detector.contract.weights)
        path.write_bytes(content)
