"""The picture that `--show` writes: it can be drawn whatever there is, and its colours tell what weighed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.core import Record, Regions
from diptych.inference.drawing import COLOURS, draw, label_of
from diptych.tasks.interface import GroundedText

PICTURE = torch.full((3, 90, 120), 200, dtype=torch.uint8)


def prediction(words: list[str], boxes: list[list[float]], weights: torch.Tensor) -> GroundedText:
    regions = Regions(boxes=torch.tensor(boxes).reshape(-1, 4), scores=torch.ones(len(boxes)), size=(120, 90))
    record = Record("a", image=Path("a.png"), regions=regions)
    return GroundedText(" ".join(words), 0.0, "fp32", record, tuple(words), weigh=lambda: weights)


def colours(said: GroundedText, picture: torch.Tensor = PICTURE) -> set[tuple[int, ...]]:
    image = draw(said, picture)
    return {colour for _, colour in image.getcolors(image.width * image.height) or []}  # type: ignore[misc]


def rgb(place: int) -> tuple[int, ...]:
    return tuple(bytes.fromhex(COLOURS[place][1:]))


def test_the_region_that_weighed_most_is_drawn_first() -> None:
    boxes = [[0.1, 0.1, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9]]
    image = draw(prediction(["a", "dog"], boxes, torch.tensor([[0.0, 0.1], [0.2, 3.0]])), PICTURE)
    scale = 480 / 90
    left, top = (16 + int(108 * 0 + 120 * 0.5 * scale) + 2, 0)
    column = [image.getpixel((left, y)) for y in range(top, image.height)]
    assert rgb(0) in column  # the second region has the first colour
    assert rgb(1) not in column


@pytest.mark.parametrize(
    ("words", "count"),
    [(0, 1), (1, 0), (3, 100), (40, 3)],
    ids=["no words", "no regions", "many regions", "many words"],
)
def test_anything_can_be_drawn(words: int, count: int) -> None:
    boxes = [[0.999, 0.999, 1.0, 1.0]] * count
    said = prediction(["incomprehensibilities"] * words, boxes, torch.randn(words, count))
    for shape in ((3, 90, 120), (3, 4, 4000), (3, 4000, 4)):
        assert colours(said, torch.zeros(shape, dtype=torch.uint8)), "an empty drawing"


def test_where_no_region_mattered_none_has_a_colour() -> None:
    said = prediction(["a", "dog"], [[0.1, 0.1, 0.4, 0.4]], torch.tensor([[0.01], [-0.02]]))
    assert not {rgb(place) for place in range(len(COLOURS))} & colours(said)


def test_at_most_eight_regions_have_a_colour() -> None:
    boxes = [[n / 20, n / 20, n / 20 + 0.1, n / 20 + 0.1] for n in range(12)]
    found = colours(prediction(["dog"], boxes, torch.arange(12.0)[None]))
    assert {rgb(place) for place in range(len(COLOURS))} <= found


def test_regions_that_cover_one_another_have_one_column_and_their_class_is_named() -> None:
    """The best stands for all, and the others of its group have no colour of their own."""
    boxes = [[0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9], [0.1, 0.1, 0.5, 0.52]]
    alike = prediction(["a", "dog"], boxes, torch.tensor([[2.0, 1.0, 2.0], [2.0, 1.0, 2.0]]))
    assert {rgb(0), rgb(1)} <= colours(alike)
    assert rgb(2) not in colours(alike)
    classes = torch.tensor([[0.2, 0.7], [0.9, 0.1], [0.2, 0.8]])
    named = replace(alike, record=replace(alike.record, regions=replace(alike.regions, classes=classes)),
                    class_names=("kite", "dog"))  # fmt: skip
    assert label_of(named, [0, 2]) == "dog 0.70, and 1 region that covers it"
    assert label_of(named, [1]) == "kite 0.90"
    assert label_of(alike, [0, 1, 2]) == "region, and 2 regions that cover it"
    assert draw(named, PICTURE).tobytes() != draw(alike, PICTURE).tobytes()
