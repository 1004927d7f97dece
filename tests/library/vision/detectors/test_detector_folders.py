"""A detector's folder is held against the contract of the features that it made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diptych.runtime.errors import CheckpointError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors import weights
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.image_feature import WithImageFeature
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.weights import check_detector, read_detector
from tests.support import toy

if TYPE_CHECKING:
    from diptych_world.detector.detector import StorybookDetector


@pytest.fixture(scope="module")
def small() -> StorybookDetector:
    return toy.detector(64, Selection(most=3, least=3))


def with_whole(detector: Detector) -> Detector:
    return WithImageFeature(detector, Backbone.of("timm/test_resnet", 32, pretrained=False))


@pytest.mark.parametrize("whole", [False, True])
def test_every_file_is_held_against_the_contract(small: StorybookDetector, whole: bool, tmp_path: Path) -> None:
    detector = with_whole(small) if whole else small
    detector.save(tmp_path)
    check_detector(tmp_path, detector.contract.weights)
    with pytest.raises(CheckpointError, match="did not compute these features"):
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


@pytest.mark.parametrize("whole", [False, True])
def test_no_bit_of_a_description_changes_unseen(small: StorybookDetector, whole: bool, tmp_path: Path) -> None:
    detector = with_whole(small) if whole else small
    detector.save(tmp_path)
    wanted = read_detector(tmp_path)
    path = tmp_path / "regions" / "detector.json" if whole else tmp_path / "detector.json"
    content = path.read_bytes()
    unnamed, unseen = [], []
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            check_detector(tmp_path, detector.contract.weights, files=False)
        except CheckpointError as error:
            unnamed += [at] if str(path) not in str(error) else []
        else:  # but a blank that was changed to another
            unseen += [at] if json.loads(path.read_bytes()) != json.loads(content) else []
    assert (unnamed, unseen) == ([], [])
    path.write_bytes(content)
    check_detector(tmp_path, detector.contract.weights)
    assert read_detector(tmp_path) == wanted


def test_a_description_of_before_is_read_and_one_of_later_is_not(
    small: StorybookDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.save(tmp_path)
    wanted, path = read_detector(tmp_path), tmp_path / "detector.json"
    path.write_text(json.dumps(wanted))
    assert read_detector(tmp_path) == wanted
    path.write_text(json.dumps(wanted | {"format": 2}))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        read_detector(tmp_path)
    with monkeypatch.context() as later:
        later.setattr(weights, "FORMAT", 3)
        small.save(tmp_path)
    with pytest.raises(CheckpointError, match="has format 3, but this version of Diptych reads 2"):
        read_detector(tmp_path)
