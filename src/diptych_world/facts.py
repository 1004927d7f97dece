"""Facts about a scene, computed once for its captions, questions and expressions."""

from collections import Counter
from functools import cached_property

from diptych_world.kinds import KINDS
from diptych_world.world import Figure, Scene

LINKS = ("holding", "on", "under")
_WEIGHT = {"person": 1.6, "animal": 1.5, "vehicle": 1.1, "object": 0.8}


class Facts:
    """Facts about the objects of a scene: counts, relations, and the order in which a person would mention them.

    An object is given by its index in `scene.figures`.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.figures = scene.figures
        self.counts = Counter(figure.kind for figure in scene.figures)
        self.links = [link for link in scene.relations if link[1] in LINKS]
        self.sides = [link for link in scene.relations if link[1] in ("left of", "right of")]
        self.posed = [number for number, figure in enumerate(scene.figures) if figure.pose]

    @cached_property
    def by_kind(self) -> dict[str, list[int]]:
        """Return the objects of each kind."""
        return {kind: [at for at, one in enumerate(self.figures) if one.kind == kind] for kind in self.counts}

    @cached_property
    def alone(self) -> list[int]:
        """Return the objects that are the only one of their kind. Only these can be called `the dog`."""
        return [numbers[0] for numbers in self.by_kind.values() if len(numbers) == 1]

    @cached_property
    def order(self) -> list[int]:
        """Return all objects, the most salient first. Salience depends on size, on being alive, and on relations."""
        linked = {number for a, _, b in self.links for number in (a, b)}

        def salience(number: int) -> float:
            figure = self.figures[number]
            x1, y1, x2, y2 = figure.box
            area: float = ((x2 - x1) * (y2 - y1)) ** 0.5
            return area * _WEIGHT[KINDS[figure.kind].family] * (1.5 if number in linked else 1.0)

        return sorted(range(len(self.figures)), key=salience, reverse=True)

    def between(self, subject: int, other: int) -> str | None:
        """Return the first relation from `subject` to `other`, or None."""
        return next((relation for a, relation, b in self.scene.relations if (a, b) == (subject, other)), None)

    def colours_of_kind(self, kind: str) -> set[str]:
        """Return all colours of the objects of a kind."""
        return {self.figures[number].colour for number in self.by_kind.get(kind, ())}

    def of(self, number: int) -> Figure:
        """Return the object with this index."""
        return self.figures[number]
