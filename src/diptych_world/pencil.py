"""Draw flat shapes with a dark outline, anti-aliased by aggdraw."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypedDict, Unpack

import aggdraw
import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Line = Colour | Literal["darker"] | None  # outline: a colour, a darker shade of the fill, or none

PAINT: dict[str, Colour] = {
    "red": (222, 54, 52), "orange": (245, 138, 34), "yellow": (250, 210, 50), "green": (62, 166, 74),
    "blue": (52, 112, 214), "purple": (140, 74, 178), "pink": (248, 148, 190), "brown": (136, 88, 52),
}  # fmt: skip
OUTLINE = 0.9  # default width of an outline, in units of the page
INK: Colour = (52, 44, 52)
WHITE: Colour = (252, 250, 246)


class Style(TypedDict, total=False):
    """Optional settings of a shape, which replace the defaults of `Pencil`."""

    line: Line  # outline; default: "darker"
    width: float | None  # width of the outline in units; default: OUTLINE
    opacity: int  # opacity of the fill, 0 to 255; default: 255


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return a mix of two colours. `share`: weight of the second, 0 to 1."""
    r, g, b = (round(x + (y - x) * share) for x, y in zip(first, second, strict=True))
    return r, g, b


def shade(colour: Colour, by: float) -> Colour:
    """Return a colour mixed with black (`by` from -1 to 0) or with white (`by` from 0 to 1)."""
    return mix(colour, (0, 0, 0) if by < 0 else (255, 255, 255), abs(by))


@lru_cache(maxsize=1024)
def _brush(colour: Colour, opacity: int) -> Any:
    return aggdraw.Brush(colour, opacity)


@lru_cache(maxsize=1024)
def _pen(colour: Colour, width: float, opacity: int) -> Any:
    return aggdraw.Pen(colour, width, opacity)


class Pencil:
    """A page of `width` x `height` units to draw on. It is transparent, or begins as a copy of the image `paper`.

    A unit is `scale` pixels. `paper` has the shape (height, width, 3). Coordinates are rounded to 0.01 pixels: the last
    digit of a sine differs between machines, and must not change a pixel.
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
        """Return aggdraw's pen for the outline and brush for the fill. None: no outline, or no fill."""
        brush = None if fill is None else _brush(fill, opacity)
        if line is None:
            return None, brush
        colour = line if isinstance(line, tuple) else shade(fill or INK, -0.42)
        return _pen(colour, round((OUTLINE if width is None else width) * self.scale, 2), 255), brush

    def polygon(self, points: Sequence[float], fill: Colour | None, **style: Unpack[Style]) -> None:
        """Draw a closed polygon. `points`: x y x y ..."""
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
        """Draw an ellipse with the centre (x, y), the horizontal radius `across` and the vertical radius `down`."""
        corners = self._points((x - across, y - down, x + across, y + down))
        self._page.ellipse(corners, *self._tools(fill, **style))

    def circle(self, x: float, y: float, radius: float, fill: Colour | None, **style: Unpack[Style]) -> None:
        """Draw a circle with the centre (x, y)."""
        self.ellipse(x, y, radius, radius, fill, **style)

    def chord(
        self, x: float, y: float, across: float, down: float, fill: Colour, start: float, end: float,
        **style: Unpack[Style],
    ) -> None:  # fmt: skip
        """Draw a segment of an ellipse: the area between an arc and its chord.

        The arc is from `start` to `end`, in degrees counter-clockwise from east.
        """
        corners = self._points((x - across, y - down, x + across, y + down))
        self._page.chord(corners, start, end, *self._tools(fill, **style))

    def stroke(self, points: Sequence[float], colour: Colour, width: float, opacity: int = 255) -> None:
        """Draw an open line with round ends and joints, such as an arm or a string. `points`: x y x y ..."""
        self._page.line(self._points(points), _pen(colour, round(width * self.scale, 2), opacity))
        if width >= 2:
            for x, y in zip(points[::2], points[1::2], strict=True):
                self.circle(x, y, width / 2, colour, line=None)

    def curve(
        self, points: Sequence[float], fill: Colour | None, *, closed: bool = True, **style: Unpack[Style]
    ) -> None:
        """Draw a path of cubic Bézier curves.

        `points`: x y of the start, then six numbers per curve (two control points and its end).
        """
        path = aggdraw.Path()
        numbers = self._points(points)
        path.moveto(*numbers[:2])
        for at in range(2, len(numbers), 6):
            path.curveto(*numbers[at : at + 6])
        if closed:
            path.close()
        self._page.path(path, *self._tools(fill, **style))

    def pixels(self) -> NDArray[np.uint8]:
        """Return the pixels: (height, width, 4) with premultiplied colours, or (height, width, 3) with paper."""
        width, height = self.size
        return np.frombuffer(self._page.tobytes(), np.uint8).reshape(height, width, self._channels)
