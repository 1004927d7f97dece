"""Drawing of flat shapes with a dark outline, anti-aliased by aggdraw, in the units of each drawing."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypedDict, Unpack

import aggdraw
import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Line = Colour | Literal["darker"] | None  # an outline: its colour, a darker shade of the fill, or none

PAINT: dict[str, Colour] = {
    "red": (222, 54, 52), "orange": (245, 138, 34), "yellow": (250, 210, 50), "green": (62, 166, 74),
    "blue": (52, 112, 214), "purple": (140, 74, 178), "pink": (248, 148, 190), "brown": (136, 88, 52),
}  # fmt: skip
OUTLINE = 0.9  # default width of an outline, in units
INK: Colour = (52, 44, 52)
WHITE: Colour = (252, 250, 246)


class Style(TypedDict, total=False):
    """How a shape is drawn, if it differs from the defaults of `Pencil`."""

    line: Line  # the outline; "darker" by default
    width: float | None  # of the outline, in units; OUTLINE by default
    opacity: int  # of the fill, 0 to 255; 255 by default


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Mix two colours; `share` (0 to 1) is the weight of the second."""
    r, g, b = (round(x + (y - x) * share) for x, y in zip(first, second, strict=True))
    return r, g, b


def shade(colour: Colour, by: float) -> Colour:
    """Mix a colour with black (`by` from -1 to 0) or white (`by` from 0 to 1)."""
    return mix(colour, (0, 0, 0) if by < 0 else (255, 255, 255), abs(by))


@lru_cache(maxsize=1024)
def _brush(colour: Colour, opacity: int) -> Any:
    return aggdraw.Brush(colour, opacity)


@lru_cache(maxsize=1024)
def _pen(colour: Colour, width: float, opacity: int) -> Any:
    return aggdraw.Pen(colour, width, opacity)


class Pencil:
    """A transparent page of `width` x `height` units to draw on, or an opaque one that starts as `paper`.

    A unit is `scale` pixels. `paper` is (height, width, 3) in pixels. Coordinates are rounded to a hundredth of a
    pixel, because the last digit of a sine differs between machines and must change no pixel.
    """

    def __init__(self, width: float, height: float, scale: float, paper: NDArray[np.uint8] | None = None) -> None:
        self.scale = scale
        self.size = max(1, round(width * scale)), max(1, round(height * scale))
        self._channels = 4 if paper is None else 3
        self._page = aggdraw.Draw("RGBA" if paper is None else "RGB", self.size, (0, 0, 0, 0)[: self._channels])
        if paper is not None:
            self._page.frombytes(paper.tobytes())

    def _points(self, points: Sequence[float]) -> list[float]:
        return [round(value * self.scale, 2) for value in points]

    def _tools(
        self, fill: Colour | None, line: Line = "darker", width: float | None = None, opacity: int = 255
    ) -> tuple[Any, Any]:
        """Return the outline's pen and the fill's brush; None if the shape has no outline or no fill."""
        brush = None if fill is None else _brush(fill, opacity)
        if line is None:
            return None, brush
        colour = line if isinstance(line, tuple) else shade(fill or INK, -0.42)
        return _pen(colour, round((OUTLINE if width is None else width) * self.scale, 2), 255), brush

    def polygon(self, points: Sequence[float], fill: Colour | None, **style: Unpack[Style]) -> None:
        """Draw a closed polygon; `points` is x y x y ..."""
        self._page.polygon(self._points(points), *self._tools(fill, **style))

    def box(self, x1: float, y1: float, x2: float, y2: float, fill: Colour | None, **style: Unpack[Style]) -> None:
        """Draw a rectangle between two opposite corners."""
        self.polygon((x1, y1, x2, y1, x2, y2, x1, y2), fill, **style)

    def round_box(
        self, x1: float, y1: float, x2: float, y2: float, fill: Colour | None, *, radius: float, **style: Unpack[Style]
    ) -> None:
        """Draw a rectangle with rounded corners."""
        corners = self._points((x1, y1, x2, y2))
        self._page.rounded_rectangle(corners, radius * self.scale, *self._tools(fill, **style))

    def ellipse(
        self, x: float, y: float, across: float, down: float, fill: Colour | None, **style: Unpack[Style]
    ) -> None:
        """Draw an ellipse around (x, y) with the radii `across` and `down`."""
        corners = self._points((x - across, y - down, x + across, y + down))
        self._page.ellipse(corners, *self._tools(fill, **style))

    def circle(self, x: float, y: float, radius: float, fill: Colour | None, **style: Unpack[Style]) -> None:
        """Draw a circle around (x, y)."""
        self.ellipse(x, y, radius, radius, fill, **style)

    def chord(
        self, x: float, y: float, across: float, down: float, fill: Colour, start: float, end: float,
        **style: Unpack[Style],
    ) -> None:  # fmt: skip
        """Draw an ellipse between its chord and the arc `start` to `end` (degrees counter-clockwise from east)."""
        corners = self._points((x - across, y - down, x + across, y + down))
        self._page.chord(corners, start, end, *self._tools(fill, **style))

    def stroke(self, points: Sequence[float], colour: Colour, width: float, opacity: int = 255) -> None:
        """Draw an open line with round ends and joints, as for arms, legs and strings."""
        self._page.line(self._points(points), _pen(colour, round(width * self.scale, 2), opacity))
        if width >= 2:
            for x, y in zip(points[::2], points[1::2], strict=True):
                self.circle(x, y, width / 2, colour, line=None)

    def curve(
        self, points: Sequence[float], fill: Colour | None, *, closed: bool = True, **style: Unpack[Style]
    ) -> None:
        """Draw a path of cubic curves: x y, then six numbers per curve (two control points and the end)."""
        path = aggdraw.Path()
        numbers = self._points(points)
        path.moveto(*numbers[:2])
        for at in range(2, len(numbers), 6):
            path.curveto(*numbers[at : at + 6])
        if closed:
            path.close()
        self._page.path(path, *self._tools(fill, **style))

    def pixels(self) -> NDArray[np.uint8]:
        """Return (height, width, 4), colours premultiplied by opacity, or (height, width, 3) for a page with paper."""
        width, height = self.size
        return np.frombuffer(self._page.tobytes(), np.uint8).reshape(height, width, self._channels)
