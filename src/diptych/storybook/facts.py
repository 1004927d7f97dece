"""What is true of a scene, worked out once for its captions, questions and expressions."""

from collections import Counter, defaultdict
from functools import cached_property

from diptych.storybook.kinds import KINDS
from diptych.storybook.world import Figure, Scene

LINKS = ("holding", "on", "under")
_WEIGHT = {"person": 1.6, "animal": 1.5, "vehicle": 1.1, "object": 0.8}


class Facts:
    """Counts, singletons and the order in which a person would mention objects."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.figures = scene.figures
        self.counts = Counter(figure.kind for figure in scene.figures)
        self.links = [link for link in scene.relations if link[1] in LINKS]
        self.sides = [link for link in scene.relations if link[1] in ("left of", "right of")]

    @cached_property
    def by_kind(self) -> dict[str, list[int]]:
        found = defaultdict(list)
        for number, figure in enumerate(self.figures):
            found[figure.kind].append(number)
        return dict(found)

    @cached_property
    def alone(self) -> list[int]:
        """Things that are the only ones of their kind: `the dog` means one of these."""
        return [numbers[0] for numbers in self.by_kind.values() if len(numbers) == 1]

    @cached_property
    def order(self) -> list[int]:
        """All objects, the most telling first: large, alive, part of something."""
        linked = {number for a, _, b in self.links for number in (a, b)}

        def telling(number: int) -> float:
            figure = self.figures[number]
            x1, y1, x2, y2 = figure.box
            area: float = ((x2 - x1) * (y2 - y1)) ** 0.5
            return area * _WEIGHT[KINDS[figure.kind].family] * (1.5 if number in linked else 1.0)

        return sorted(range(len(self.figures)), key=telling, reverse=True)

    def between(self, subject: int, other: int) -> str | None:
        """The first relation that holds from one to the other."""
        return next((relation for a, relation, b in self.scene.relations if (a, b) == (subject, other)), None)

    def colours_of_kind(self, kind: str) -> set[str]:
        return {self.figures[number].colour for number in self.by_kind.get(kind, ())}

    def of(self, number: int) -> Figure:
        return self.figures[number]
