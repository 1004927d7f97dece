"""One drawing function for each kind of thing: facing right, in the pixels of a medium one."""

from collections.abc import Mapping

from diptych.storybook.drawings.animals import bird, cat, dog, duck, rabbit
from diptych.storybook.drawings.indoors import ball, book, box, chair, cup, flower, lamp, table
from diptych.storybook.drawings.manner import Drawing, Manner
from diptych.storybook.drawings.outdoors import balloon, bench, house, kite, tent, tree, umbrella
from diptych.storybook.drawings.people import boy, girl, man, woman
from diptych.storybook.drawings.vehicles import bicycle, boat, bus, car, plane

_ALL = (
    man, woman, boy, girl, dog, cat, bird, duck, rabbit, car, bus, bicycle, boat, plane, balloon, kite, umbrella,
    tree, house, tent, bench, cup, ball, flower, book, chair, table, lamp, box,
)  # fmt: skip
DRAWINGS: Mapping[str, Drawing] = {drawing.__name__: drawing for drawing in _ALL}

__all__ = ["DRAWINGS", "Drawing", "Manner"]
