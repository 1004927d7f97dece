"""The drawn world as a data set: scenes by number, and a scene with all its words."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import overload

from diptych.core import Object, Record
from diptych.core.entailment import ENTAILMENT
from diptych.storybook.captions import alt_text, captions
from diptych.storybook.choices import choices
from diptych.storybook.expressions import expressions
from diptych.storybook.facts import Facts
from diptych.storybook.hypotheses import hypotheses
from diptych.storybook.layout import scene
from diptych.storybook.questions import questions, statements
from diptych.storybook.world import SIDE, Figure, Scene


class Storybook(Sequence[Scene]):
    """The first `count` scenes of a split."""

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
            raise IndexError(f"scene {index} of a Storybook of {self.length}")
        return scene(self.seed, self.split, index % self.length)


def thing(figure: Figure) -> Object:
    x1, y1, x2, y2 = figure.box
    attributes = {"colour": figure.colour, "size": figure.size}
    if figure.pose:
        attributes["pose"] = figure.pose
    return Object(figure.kind, (x1 / SIDE, y1 / SIDE, x2 / SIDE, y2 / SIDE), attributes, figure.visible)


def record(scene: Scene, picture: Path | None = None) -> Record:
    """Everything that is said about the scene and everything that is true of it.

    The web split has one careless caption and no questions; the others have five captions and all tasks.
    """
    rng = Random(f"words {scene.seed} {scene.split} {scene.index}")
    facts = Facts(scene)
    made = Record(
        key=scene.key,
        split=scene.split,
        image=picture,
        size=(SIDE, SIDE),
        objects=tuple(thing(figure) for figure in scene.figures),
        relations=scene.relations,
    )
    if scene.split == "web":
        return replace(made, captions=(alt_text(rng, facts),))
    drawn = hypotheses(Random(f"hypotheses {scene.seed} {scene.split} {scene.index}"), facts)
    return replace(
        made,
        captions=captions(rng, facts),
        questions=questions(rng, facts),
        expressions=expressions(rng, facts),
        choices=choices(rng, facts),
        statements=statements(rng, facts),
        more={ENTAILMENT: drawn} if drawn else {},
    )
