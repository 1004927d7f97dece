"""The same boxes stay as with torchvision's own functions, which are not imported for it."""

import subprocess
import sys

import pytest
import torch

from diptych.vision.detectors.nms import LARGE, batched_nms, nms


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


@pytest.mark.slow
def test_torchvision_is_not_imported_and_may_be_later() -> None:
    code = """
import sys, torch
import diptych.api.training  # what `finetune` loads
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
