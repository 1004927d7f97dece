"""The same boxes stay as with torchvision's own functions, which are not imported for it."""

import subprocess
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
import torch

from diptych.vision.detectors import nms as of_nms
from diptych.vision.detectors.nms import LARGE, batched_nms, kernels, nms
from diptych.vision.detectors.proposers.proposer import corners_of_centred


@pytest.mark.parametrize("count", [0, 1, 24, LARGE, LARGE + 1])
def test_as_torchvision(count: int) -> None:
    from torchvision import ops

    torch.manual_seed(count)
    corners = torch.rand(count, 2)
    boxes = torch.cat([corners, corners + 0.3 * torch.rand(count, 2)], 1)
    scores, classes = torch.rand(count), torch.randint(5, (count,))
    assert torch.equal(nms(boxes, scores, 0.5), ops.nms(boxes, scores, 0.5))
    assert torch.equal(batched_nms(boxes, scores, classes, 0.5), ops.batched_nms(boxes, scores, classes, 0.5))
    assert len(batched_nms(boxes, scores, classes, 0.5)) <= count
    assert torch.equal(corners_of_centred(boxes), ops.box_convert(boxes, "cxcywh", "xyxy"))


def test_the_operators_that_pool_are_as_torchvision() -> None:
    from torchvision import ops

    torch.manual_seed(0)
    maps, rois = torch.rand(1, 3, 9, 12), torch.tensor([[0.0, 1, 2, 30, 20], [0.0, 0, 0, 47, 35]])
    aligned = kernels().roi_align(maps, rois, 0.25, 7, 7, 2, False)
    assert torch.equal(aligned, ops.roi_align(maps, rois, 7, 0.25, 2, aligned=False))
    assert torch.equal(kernels().roi_pool(maps, rois, 0.25, 7, 7)[0], ops.roi_pool(maps, rois, 7, 0.25))


def test_a_library_that_cannot_be_loaded_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "_C.so").write_bytes(b"of another system")
    monkeypatch.setattr(of_nms, "find_spec", lambda name: spec_from_file_location(name, tmp_path / "__init__.py"))
    kernels.cache_clear()
    assert kernels().nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5).tolist() == [0]
    kernels.cache_clear()


@pytest.mark.slow
def test_torchvision_is_not_imported_and_may_be_later() -> None:
    code = """
import sys, torch
import diptych.api.training  # what `finetune` loads
import diptych.vision.detectors.pooled, diptych.vision.detectors.official.detector, diptych.vision.backbones.onnx
from diptych.vision.detectors.nms import batched_nms
boxes = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 0, 1, 0.8]])
kept = batched_nms(boxes, torch.tensor([0.5, 0.6, 0.7]), torch.tensor([0, 1, 1]), 0.5)
assert kept.tolist() == [2, 0], kept
assert "torchvision" not in sys.modules and "torch._dynamo" not in sys.modules
from torchvision.ops import nms
assert nms(boxes, torch.tensor([0.5, 0.6, 0.7]), 0.5).tolist() == [2]
"""
    # an interpreter: what is imported when
    subprocess.run([sys.executable, "-c", code], check=True)
