import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.core import FeatureContract, Regions
from diptych.runtime.configs import of_json


def test_hiding_flags_regions_and_leaves_the_rest() -> None:
    seen = Regions(boxes=torch.rand(3, 4), scores=torch.rand(3), size=(8, 8), features=torch.rand(3, 2))
    hidden = seen.hide(torch.tensor([True, False, False]), chosen=torch.tensor([True, True, False]))
    assert hidden.hidden is not None
    assert hidden.chosen is not None
    assert hidden.hidden.tolist() == [True, False, False]
    assert hidden.chosen.tolist() == [True, True, False]
    assert seen.hidden is None
    assert hidden.features is seen.features


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(3, 20), st.integers(3, 20))
def test_no_pixel_that_a_hidden_box_touches_stays(corners: list[float], height: int, width: int) -> None:
    x1, x2 = sorted(corners[:2])
    y1, y2 = sorted(corners[2:])
    seen = Regions(
        boxes=torch.tensor([[x1, y1, x2, y2]]),
        scores=torch.ones(1),
        size=(width, height),
        pixels=torch.ones(3, height, width),
    )
    pixels = seen.hide(torch.tensor([True])).pixels
    assert pixels is not None
    for y in range(height):
        for x in range(width):
            touched = (
                x + 1 > x1 * width + 1e-3
                and x < x2 * width - 1e-3
                and y + 1 > y1 * height + 1e-3
                and y < y2 * height - 1e-3
            )
            if touched:
                assert pixels[:, y, x].eq(0).all()


def test_a_hidden_region_has_no_outline() -> None:
    masks = torch.zeros(2, 3, 3, dtype=torch.bool)
    masks[:, 1] = True
    seen = Regions(boxes=torch.rand(2, 4), scores=torch.ones(2), size=(8, 8), masks=masks)
    after = seen.hide(torch.tensor([True, False])).masks
    assert after is not None
    assert after[0].all()
    assert torch.equal(after[1], masks[1])
    assert not masks[0].all()  # those of the regions as they were stay


def test_hiding_leaves_the_pixels_outside() -> None:
    seen = Regions(
        boxes=torch.tensor([[0, 0, 0.5, 0.5]]), scores=torch.ones(1), size=(4, 4), pixels=torch.ones(3, 4, 4)
    )
    pixels = seen.hide(torch.tensor([True])).pixels
    assert pixels is not None
    assert pixels[0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]


def test_the_first_regions_are_the_best() -> None:
    seen = Regions(boxes=torch.rand(3, 4), scores=torch.tensor([0.9, 0.5, 0.1]), size=(4, 4), features=torch.rand(3, 2))
    assert seen.first(2).scores.tolist() == seen.scores[:2].tolist()
    assert seen.first(5) is seen


def test_contracts_name_each_difference() -> None:
    one = FeatureContract("fasterrcnn", "a" * 64, 1024, class_names=("cat", "dog"))
    assert one.differences(of_json(FeatureContract, one.to_json())) == []
    other = FeatureContract("fasterrcnn", "b" * 64, 2048, class_names=("cat", "dog"))
    assert one.differences(other) == [f"weights: {'a' * 12}…, not {'b' * 12}…", "feature_size: 1024, not 2048"]
