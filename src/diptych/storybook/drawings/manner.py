"""What a drawing is told beside its colour."""

from collections.abc import Callable
from typing import NamedTuple

from diptych.storybook.pencil import Colour, Pencil


class Manner(NamedTuple):
    pose: str  # empty where the kind has none
    look: int  # 0 to 3
    holding: bool


Drawing = Callable[[Pencil, Colour, Manner], None]
