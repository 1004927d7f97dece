"""RoIAlign by matrix products, beside torchvision's."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.ops import roi_align

from diptych.vision.detectors.pooling import pool_regions


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), cells=st.integers(1, 7), height=st.integers(2, 12), width=st.integers(2, 12))
def test_it_is_torchvisions(seed: int, cells: int, height: int, width: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    maps = torch.randn(2, 3, height, width, generator=rng)
    corners = torch.rand(2, 4, 2, 2, generator=rng).sort(2).values
    boxes = corners.flatten(2)
    boxes[0, 0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    boxes[1, 1] = torch.tensor([0.5, 0.5, 0.5, 0.5])
    pixels = [of_one * torch.tensor([width, height, width, height]) for of_one in boxes]
    theirs = roi_align(maps, pixels, cells, 1.0, sampling_ratio=2, aligned=True)
    torch.testing.assert_close(pool_regions(maps, boxes, cells).flatten(0, 1), theirs, atol=1e-5, rtol=1e-5)


def test_its_gradient_is_torchvisions() -> None:
    torch.manual_seed(0)
    maps = torch.randn(1, 4, 9, 7, dtype=torch.float64, requires_grad=True)
    boxes = torch.tensor([[[0.1, 0.2, 0.7, 0.9], [0.0, 0.0, 0.3, 0.2]]], dtype=torch.float64)
    wanted = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    pixels = boxes[0] * torch.tensor([7, 9, 7, 9])
    theirs = roi_align(maps, [pixels], 5, 1.0, sampling_ratio=2, aligned=True)
    ours = pool_regions(maps, boxes, 5)[0]
    gradients = [torch.autograd.grad((pooled * wanted).sum(), maps)[0] for pooled in (theirs, ours)]
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=1e-9)
