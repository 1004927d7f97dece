"""Place the labels of regions on an image so that they overlap little."""

from collections.abc import Sequence
from dataclasses import dataclass

from diptych.runs.reports.report import Box

LETTER = 0.045  # height of a letter relative to the image's longer side
WIDE = 0.56  # average width of a letter relative to its height


@dataclass(frozen=True)
class Label:
    """A text and its position: `x` of the left end and `y` of the baseline, in pixels of the image."""

    text: str
    x: float
    y: float


def lay_out(boxes: Sequence[Box], size: tuple[int, int]) -> tuple[Label, ...]:
    """Place each label at the inner top edge of its box.

    If it would overlap others, another edge with less overlap is used.
    """
    width, height = size
    letter = LETTER * max(size)
    taken: list[tuple[float, float, float, float]] = []
    labels = []
    for box in boxes:
        long = WIDE * letter * len(box.name)
        x1, y1, x2, y2 = (end * side for end, side in zip(box.box, (width, height, width, height), strict=True))
        tops = (y1 + 0.15 * letter, y1 - 1.15 * letter, y2 - 1.2 * letter, y2 + 0.1 * letter)
        places = [
            (_within(x, long, width), _within(y, letter, height)) for y in tops for x in (x1 + 0.3 * letter, x2 - long)
        ]
        spots = [(x, y, x + long, y + letter) for x, y in places]
        spot = min(spots, key=lambda spot: sum(_shared(spot, other) for other in taken))
        taken.append(spot)
        labels.append(Label(box.name, round(spot[0], 1), round(spot[1] + 0.85 * letter, 1)))
    return tuple(labels)


def _within(start: float, length: float, end: float) -> float:
    return max(0.0, min(start, end - length))


def _shared(first: tuple[float, float, float, float], second: tuple[float, float, float, float]) -> float:
    wide = min(first[2], second[2]) - max(first[0], second[0])
    tall = min(first[3], second[3]) - max(first[1], second[1])
    return max(wide, 0.0) * max(tall, 0.0)
