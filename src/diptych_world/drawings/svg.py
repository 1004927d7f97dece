"""Draw objects from SVG files, one file for each kind.

In a file, `currentColor` is the colour of the object, and `color-mix` a shade of it. A group with a `class` is drawn
only for this pose or look, such as `sitting` or `look-3`. A shape without `stroke` gets the default outline, a darker
shade of its fill.
"""

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

from diptych.runtime.files import text_of
from diptych_world.pencil import Colour, Pencil, Style, shade

_NUMBER = re.compile(r"-?[\d.]+")
_MIXED = re.compile(r"(black|white) ([\d.]+)%")


def draw_svg(kind: str, pencil: Pencil, colour: Colour, classes: Collection[str]) -> None:
    """Draw the SVG file of a kind. Groups with a class are drawn only if it is in `classes`."""
    for part in _drawing(kind):
        if part.tag != "{http://www.w3.org/2000/svg}g":
            _draw(part, pencil, colour)
        elif not set(part.attrib["class"].split()).isdisjoint(classes):
            for shape in part:
                _draw(shape, pencil, colour)


@cache
def _drawing(kind: str) -> Element:
    return fromstring(text_of(Path(__file__).with_name(f"{kind}.svg")))


def _draw(shape: Element, pencil: Pencil, colour: Colour) -> None:
    given = shape.attrib
    numbers = {name: float(value) for name, value in given.items() if _NUMBER.fullmatch(value)}
    points = [float(number) for number in _NUMBER.findall(given.get("points", given.get("d", "")))]
    fill, style = _paint(given["fill"], colour), _style(given, numbers, colour)
    match shape.tag.partition("}")[2]:
        case "polygon":
            pencil.polygon(points, fill, **style)
        case "path":
            pencil.curve(points, fill, closed=given["d"].endswith("Z"), **style)
        case "polyline":
            line = _paint(given["stroke"], colour)
            assert line is not None
            pencil.stroke(points, line, numbers["stroke-width"], round(numbers.get("stroke-opacity", 1) * 255))
        case "rect":
            left, top = numbers["x"], numbers["y"]
            corners = left, top, round(left + numbers["width"], 6), round(top + numbers["height"], 6)
            if "rx" in numbers:
                pencil.round_box(*corners, fill, radius=numbers["rx"], **style)
            else:
                pencil.box(*corners, fill, **style)
        case _:
            across, down = (numbers["r"],) * 2 if "r" in numbers else (numbers["rx"], numbers["ry"])
            pencil.ellipse(numbers["cx"], numbers["cy"], across, down, fill, **style)


def _style(given: dict[str, str], numbers: dict[str, float], colour: Colour) -> Style:
    style: Style = {"width": numbers.get("stroke-width"), "opacity": round(numbers.get("fill-opacity", 1) * 255)}
    return style | {"line": _paint(given["stroke"], colour)} if "stroke" in given else style


def _paint(text: str, colour: Colour) -> Colour | None:
    """Return the colour of a fill or stroke.

    `text` is `none` (returns None), `#rrggbb`, or a shade of `currentColor`.
    """
    if text == "none":
        return None
    if text.startswith("#"):
        red, green, blue = bytes.fromhex(text[1:])
        return red, green, blue
    for tone, percent in _MIXED.findall(text):
        colour = shade(colour, float(percent) / (100 if tone == "white" else -100))
    return colour
