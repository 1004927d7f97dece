"""The drawn world as a data set: scenes by number, and a scene with all its words."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import overload

from diptych.core import Choices, Expression, Question, Record, Statement, Thing
from diptych.sources.storybook.kinds import COLOURS
from diptych.sources.storybook.layout import scene
from diptych.sources.storybook.world import SIDE, Figure, Scene


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


def thing(figure: Figure) -> Thing:
    x1, y1, x2, y2 = figure.box
    attributes = {"colour": figure.colour, "size": figure.size}
    if figure.pose:
        attributes["pose"] = figure.pose
    return Thing(figure.kind, (x1 / SIDE, y1 / SIDE, x2 / SIDE, y2 / SIDE), attributes, figure.visible)


def record(scene: Scene, picture: Path | None = None) -> Record:
    """Everything that is said about the scene and everything that is true of it."""
    rng = Random(f"words {scene.seed} {scene.split} {scene.index}")
    things = tuple(thing(figure) for figure in scene.figures)
    first, second = (f"{figure.colour} {figure.kind}" for figure in scene.figures[:2])
    colour, wrong = scene.figures[0].colour, rng.choice(COLOURS)
    captions = tuple(f"a {a} and a {b} {where} the {scene.place}" for a, b in ((first, second), (second, first))
                     for where in ("in", "at", "on"))[:5]  # fmt: skip
    questions = (
        Question(f"{scene.key}/0", f"is the {scene.figures[0].kind} {wrong}",
                 ("yes" if wrong == colour else "no",) * 10, "yes/no"),
        Question(f"{scene.key}/1", "how many things are there", (str(len(things)),) * 10, "number"),
        Question(f"{scene.key}/2", f"what colour is the {scene.figures[0].kind}", (colour,) * 10, "other"),
    )  # fmt: skip
    colours = tuple(rng.sample(COLOURS, 4))
    right = rng.randrange(4)
    answers = tuple(f"[0] is {colour if i == right else other}" for i, other in enumerate(colours))
    choices = (Choices(f"{scene.key}/0", "what does [0] look like", answers, right, answers, right),)
    return Record(
        key=scene.key,
        split=scene.split,
        picture=picture,
        size=(SIDE, SIDE),
        captions=captions,
        questions=questions,
        expressions=tuple(
            Expression(f"{scene.key}/{i}", f"the {f.colour} {f.kind}", things[i].box)
            for i, f in enumerate(scene.figures)
        ),
        choices=choices,
        statements=(Statement(f"{scene.key}/0", f"there is a {wrong} {scene.figures[0].kind}", wrong == colour),),
        things=things,
        relations=scene.relations,
    )
