"""Placeholder drawings."""

from collections.abc import Callable, Mapping

from diptych.sources.storybook.kinds import KINDS
from diptych.sources.storybook.pencil import Colour, Pencil

Drawing = Callable[[Pencil, Colour, str, int, bool], None]


def _blob(name: str) -> Drawing:
    kind = KINDS[name]

    def draw(pencil: Pencil, colour: Colour, pose: str, look: int, holding: bool) -> None:
        del pose, look, holding
        w, h = kind.width / 2, kind.height / 2
        pencil.ellipse(w, h, w - 1, h - 1, colour)

    return draw


DRAWINGS: Mapping[str, Drawing] = {name: _blob(name) for name in KINDS}
