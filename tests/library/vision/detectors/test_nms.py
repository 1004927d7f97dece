"""The same boxes stay as with torchvision's own functions, which are not imported for it."""

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
