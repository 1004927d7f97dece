"""Images and records of proposers' tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from diptych.core import Record, Regions
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import keep_detector, open_detector
from diptych.vision.detectors.proposers import tfjs
from diptych.vision.detectors.weights import read_detector

SQUARE = torch.randint(0, 256, (3, 48, 48), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


WIDE = torch.randint(0, 256, (3, 40, 80), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


RECORDS = [Record("a"), Record("b")]


def grid_folder(folder: Path) -> Path:
    """A backbone of local weights, as a detector folder."""
    torch.manual_seed(0)
    from diptych.vision.detectors.grid import Grid

    Grid(Backbone.of("timm/test_resnet", 64, pretrained=False)).save(folder)
    return folder


def check_kept(package: Path, name: str, folder: Path, about: str, **tolerance: float) -> tuple[Any, list[Regions]]:
    """Keep the detector `name` of a package of TensorFlow.js, and compare it with the one that is opened from there.

    Return the kept detector and its regions of WIDE and SQUARE.
    """
    source, anything = f"tfjs:{package}#{name}", ["sha256=any"]
    assert keep_detector(source, folder, settings=anything) == [about]
    detector, opened = load_detector(folder), open_detector(source, settings=anything)
    assert opened.contract == detector.contract
    both = detector.detect([WIDE, SQUARE], RECORDS)
    for one, other in zip(both, opened.detect([WIDE, SQUARE], RECORDS), strict=True):
        assert one.features is not None
        assert one.features.shape == (len(one), detector.contract.feature_size)
        assert all(map(torch.equal, one.tensors().values(), other.tensors().values()))
    (alone,) = detector.detect([SQUARE], RECORDS[1:])
    torch.testing.assert_close(alone.features, both[1].features, **tolerance)
    # No licence is kept of files that are not the known ones.
    assert read_detector(folder)["proposer"]["origin"] == {"files": tfjs.read_graph(package, name).sums}
    return detector, both
