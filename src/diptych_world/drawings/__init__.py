"""Drawings of objects. They face right, and have the size of a medium object.

People are functions, all others SVG files.
"""

from diptych_world.drawings import people
from diptych_world.drawings.people import Manner
from diptych_world.drawings.svg import draw_svg
from diptych_world.pencil import Colour, Pencil

__all__ = ["Manner", "draw"]

_PEOPLE = {"man": people.man, "woman": people.woman, "boy": people.boy, "girl": people.girl}


def draw(kind: str, pencil: Pencil, colour: Colour, manner: Manner) -> None:
    """Draw an object of this kind."""
    if kind in _PEOPLE:
        _PEOPLE[kind](pencil, colour, manner)
    else:
        draw_svg(kind, pencil, colour, {manner.pose, f"look-{manner.look}"})
