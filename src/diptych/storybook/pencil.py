"""A pencil: flat shapes with a dark outline, anti-aliased by aggdraw, in a drawing's own pixels."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import aggdraw
import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Line = Colour | Literal["darker"] | None  # an outline: its colour, a darker shade of the fill, or none

PAINT: dict[str, Colour] = {
    "red": (222, 54, 52),
    "orange": (245, 138, 34),
    "yellow": (250, 210, 50),
    "green": (62, 166, 74),
    "blue": (52, 112, 214),
    "purple": (140, 74, 178),
    "pink": (248, 148, 190),
    "brown": (136, 88, 52),
}
INK: Colour = (52, 44, 52)
WHITE: Colour = (252, 250, 246)


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """The first colour with this share of the second."""
    r, g, b = (round(x + (y - x) * share) for x, y in zip(first, second, strict=True))
    return r, g, b


def shade(colour: Colour, by: float) -> Colour:
    """Towards black (`by` below 0, down to -1) or white (above 0, up to 1)."""
    return mix(colour, (0, 0, 0) if by < 0 else (255, 255, 255), abs(by))


@lru_cache(maxsize=1024)
def _brush(colour: Colour, opacity: int) -> Any:
    return aggdraw.Brush(colour, opacity)


@lru_cache(maxsize=1024)
def _pen(colour: Colour, width: float, opacity: int) -> Any:
    return aggdraw.Pen(colour, width, opacity)


class Pencil:
    """Draws on a see-through page of `width` x `height` units, each `scale` pixels, or over `paper`.

    `paper` is (height, width, 3) in pixels. Coordinates are rounded to a hundredth of a pixel, so that
    the last digit of a sine, which differs between machines, changes no pixel.
    """

    def __init__(self, width: float, height: float, scale: float, paper: NDArray[np.uint8] | None = None) -> None:
        self.scale = scale
        self.size = max(1, round(width * scale)), max(1, round(height * scale))
        self.outline = 0.9  # units
        self._channels = 4 if paper is None else 3
        self._page = aggdraw.Draw("RGBA" if paper is None else "RGB", self.size, (0, 0, 0, 0)[: self._channels])
        if paper is not None:
            self._page.frombytes(paper.tobytes())

    def _points(self, points: Sequence[float]) -> list[float]:
        return [round(value * self.scale, 2) for value in points]

    def _line(self, fill: Colour | None, line: Line, width: float | None) -> Any:
        """The outline's pen."""
        if line is None:
            return None
        colour = line if isinstance(line, tuple) else shade(fill or INK, -0.42)
        return _pen(colour, round((self.outline if width is None else width) * self.scale, 2), 255)

    def polygon(
        self,
        points: Sequence[float],
        fill: Colour | None,
        *,
        line: Line = "darker",
        width: float | None = None,
        opacity: int = 255,
    ) -> None:
        brush = None if fill is None else _brush(fill, opacity)
        self._page.polygon(self._points(points), self._line(fill, line, width), brush)

    def box(self, x1: float, y1: float, x2: float, y2: float, fill: Colour | None, **style: Any) -> None:
        """From one corner to the other; `style` as in polygon."""
        self.polygon((x1, y1, x2, y1, x2, y2, x1, y2), fill, **style)

    def round_box(
        self, x1: float, y1: float, x2: float, y2: float, fill: Colour, *, radius: float, line: Line = "darker"
    ) -> None:
        corners = self._points((x1, y1, x2, y2))
        self._page.rounded_rectangle(corners, radius * self.scale, self._line(fill, line, None), _brush(fill, 255))

    def ellipse(
        self,
        x: float,
        y: float,
        across: float,
        down: float,
        fill: Colour | None,
        *,
        line: Line = "darker",
        width: float | None = None,
        opacity: int = 255,
    ) -> None:
        """Around (x, y), with these two radii."""
        brush = None if fill is None else _brush(fill, opacity)
        corners = self._points((x - across, y - down, x + across, y + down))
        self._page.ellipse(corners, self._line(fill, line, width), brush)

    def circle(self, x: float, y: float, radius: float, fill: Colour | None, **style: Any) -> None:
        """`style` as in ellipse."""
        self.ellipse(x, y, radius, radius, fill, **style)

    def chord(
        self,
        x: float,
        y: float,
        across: float,
        down: float,
        fill: Colour,
        *,
        start: float,
        end: float,
        line: Line = "darker",
    ) -> None:
        """An ellipse cut by a straight line: from `start` to `end` degrees, counter-clockwise from east."""
        corners = self._points((x - across, y - down, x + across, y + down))
        self._page.chord(corners, start, end, self._line(fill, line, None), _brush(fill, 255))

    def stroke(self, points: Sequence[float], colour: Colour, width: float, opacity: int = 255) -> None:
        """An open line with round ends and joints: arms, legs and strings."""
        self._page.line(self._points(points), _pen(colour, round(width * self.scale, 2), opacity))
        if width >= 2:
            for x, y in zip(points[::2], points[1::2], strict=True):
                self.circle(x, y, width / 2, colour, line=None)

    def curve(
        self,
        points: Sequence[float],
        fill: Colour | None,
        *,
        line: Line = "darker",
        width: float | None = None,
        closed: bool = True,
    ) -> None:
        """A path of cubic curves: x y, then six numbers a curve (two control points and the end)."""
        path = aggdraw.Path()
        numbers = self._points(points)
        path.moveto(*numbers[:2])
        for at in range(2, len(numbers), 6):
            path.curveto(*numbers[at : at + 6])
        if closed:
            path.close()
        brush = None if fill is None else _brush(fill, 255)
        self._page.path(path, self._line(fill, line, width), brush)

    def pixels(self) -> NDArray[np.uint8]:
        """(height, width, 4) with colours already multiplied by their opacity, or (height, width, 3)."""
        width, height = self.size
        return np.frombuffer(self._page.tobytes(), np.uint8).reshape(height, width, self._channels)
