"""An update: objectives that are trained on the same batch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from random import Random
from typing import Any, ClassVar

from diptych.core import Batch, Capability, Losses, Objective, PairObjective, Partners, Places, Sample, StateRequest
from diptych.runtime.errors import RecipeError


@dataclass(frozen=True)
class OneForward:
    """An update with one forward pass.

    All objectives read its states, and the weighted sum of their losses makes one step.

    Objectives prepare samples in the given order. Objectives that swap captions must come before objectives that mask.
    Otherwise a caption would be masked for one image and predicted for another.
    """

    objectives: Sequence[Objective]
    weights: Mapping[str, float] = field(default_factory=dict)

    needs: ClassVar[frozenset[Capability]] = frozenset()

    def __post_init__(self) -> None:
        names = [objective.name for objective in self.objectives]
        if len(set(names)) < len(names):
            raise RecipeError(f"two objectives of one update share a name: {', '.join(names)}; give one a new `name`")
        for name in self.weights:
            if name not in names:
                raise RecipeError(f"weights has {name!r}, but the objectives are {', '.join(names)}; remove {name!r}")
        hiding: str | None = None
        for objective in self.objectives:
            if objective.changes == "pairs" and hiding is not None:
                raise RecipeError(
                    f"{objective.name} swaps captions after {hiding} has masked parts of them; "
                    f"put {objective.name} first"
                )
            if objective.changes == "input":
                hiding = objective.name

    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]:
        for objective in self.objectives:
            if partners is not None and isinstance(objective, PairObjective):
                samples = objective.pair(samples, rng, partners)
            else:
                samples = objective.prepare(samples, rng)
        return samples

    def counts(self, batch: Batch) -> Losses:
        return {objective.name: objective.count(batch) for objective in self.objectives}

    def places(self, batch: Batch) -> dict[str, Places]:
        with_mask = [objective for objective in self.objectives if len(objective.request(batch).masks) == 1]
        return {objective.name: batch.where(objective.name, objective.request) for objective in with_mask}

    def losses(self, model: Any, batch: Batch) -> Iterator[Losses]:
        states = model(with_request(batch, self.objectives))
        yield {objective.name: objective.loss(model, states, batch) for objective in self.objectives}


def with_request(batch: Batch, objectives: Sequence[Objective], also: StateRequest | None = None) -> Batch:
    """Return the batch with a request for the states that the objectives read, and for the states in `also`."""
    return replace(batch, request=reduce(or_, (o.request(batch) for o in objectives), also or StateRequest()))
