"""Storybook as a data set: numbered scenes, and the record of a scene with all its texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import overload

from diptych.core import Object, Record
from diptych.core.entailment import ENTAILMENT
from diptych_world.captions import alt_text, captions
from diptych_world.choices import choices
from diptych_world.expressions import expressions
from diptych_world.facts import Facts
from diptych_world.hypotheses import hypotheses
from diptych_world.layout import scene
from diptych_world.questions import questions, statements
from diptych_world.world import SIDE, Figure, Scene


class Storybook(Sequence[Scene]):
    """The first `count` scenes of a split. A scene is generated when it is read."""

    def __init__(self, seed: int, split: str, count: int) -> None:
        self.seed, self.split, self.length = seed, split, count

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> Scene: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scene]: ...
    def __getitem__(self, index: int | slice) -> Scene | list[Scene]:
        if isinstance(index, slice):
            return [scene(self.seed, self.split, i) for i in range(*index.indices(self.length))]
        if not -self.length <= index < self.length:
            raise IndexError(f"found scene {index} of a Storybook of {self.length}, expected 0 to {self.length - 1}")
        return scene(self.seed, self.split, index % self.length)


def thing(figure: Figure) -> Object:
    """Convert a figure to an object of a record. Its box is in fractions of the picture."""
    x1, y1, x2, y2 = (end / SIDE for end in figure.box)
    attributes = {"colour": figure.colour, "size": figure.size} | ({"pose": figure.pose} if figure.pose else {})
    return Object(figure.kind, (x1, y1, x2, y2), attributes, figure.visible)


def record(scene: Scene, picture: Path | None = None) -> Record:
    """Return the record of a scene: its objects, their relations, and texts for all tasks.

    In the split `web`, a record has one noisy caption and no questions. In other splits it has five captions.
    """
    number = f"{scene.seed} {scene.split} {scene.index}"
    rng, facts = Random(f"words {number}"), Facts(scene)
    things = tuple(map(thing, scene.figures))
    made = Record(scene.key, scene.split, picture, (SIDE, SIDE), objects=things, relations=scene.relations)
    if scene.split == "web":
        return replace(made, captions=(alt_text(rng, facts),))
    drawn = hypotheses(Random(f"hypotheses {number}"), facts)
    return replace(
        made, captions=captions(rng, facts), questions=questions(rng, facts), expressions=expressions(rng, facts),
        choices=choices(rng, facts), statements=statements(rng, facts), more={ENTAILMENT: drawn} if drawn else {},
    )  # fmt: skip
