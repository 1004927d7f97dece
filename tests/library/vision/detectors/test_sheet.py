"""The sheet of detections."""

from pathlib import Path

import torch
from PIL import Image

from diptych.core import Regions
from diptych.vision.detectors.sheet import COLOURS, GAP, class_shown, detection_sheet, with_boxes

NAMES = ("background", "cat", "dog")
BLACK = torch.zeros(3, 40, 80, dtype=torch.uint8)
SEEN = Regions(
    boxes=torch.tensor([[0.25, 0.5, 0.5, 1.0], [0.0, 0.0, 0.1, 0.1]]),
    scores=torch.tensor([0.9, 0.1]),
    size=(80, 40),
    classes=torch.tensor([[0.6, 0.1, 0.3], [0.0, 1.0, 0.0]]),
)


def test_boxes_lie_where_they_are_in_the_colour_of_their_kind() -> None:
    drawn = with_boxes(BLACK, SEEN, NAMES, side=160, least_score=0.5)
    assert drawn.size == (160, 80)
    dog = tuple(int(COLOURS[2][i : i + 2], 16) for i in (1, 3, 5))
    assert drawn.getpixel((40, 60)) == drawn.getpixel((79, 60)) == drawn.getpixel((60, 79)) == dog
    assert drawn.getpixel((60, 70)) == drawn.getpixel((150, 70)) == (0, 0, 0)
    assert drawn.getpixel((1, 5)) == (0, 0, 0)  # the second box is below the least score
    assert with_boxes(BLACK, SEEN, NAMES, side=160).getpixel((1, 5)) != (0, 0, 0)


def test_the_name_is_the_likeliest_kind_apart_from_the_background() -> None:
    assert class_shown(SEEN, 0, NAMES) == ("dog", 2)
    assert class_shown(Regions(SEEN.boxes, SEEN.scores, SEEN.size), 0, ()) == ("", 0)


def test_a_sheet_of_pictures_of_any_shape(tmp_path: Path) -> None:
    tall = torch.full((3, 60, 20), 200, dtype=torch.uint8)
    nothing = Regions(torch.zeros(0, 4), torch.zeros(0), (20, 60))
    detection_sheet([BLACK, tall, BLACK], [SEEN, nothing, SEEN], NAMES, tmp_path / "sub" / "s.png", columns=2, side=60)
    with Image.open(tmp_path / "sub" / "s.png") as sheet:
        assert sheet.size == (GAP + 2 * (60 + GAP),) * 2
        assert sheet.getpixel((GAP + 60 + GAP + 10, GAP + 30)) == (200, 200, 200)
