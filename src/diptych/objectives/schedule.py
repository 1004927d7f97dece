"""Which update a step makes."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from diptych.core import Capability, Objective, Update
from diptych.objectives.similarity import Similarity
from diptych.objectives.updates import OneForward
from diptych.runtime.errors import RecipeError


@dataclass(frozen=True)
class Schedule:
    """Updates with their weights.

    together   there is one update, and each step makes it
    in turn    one after the other, a step each (XGPT); what a loss weighs, its update says (`OneForward.weights`)
    sampled    drawn with these weights, step by step
    """

    updates: Sequence[tuple[Update, float]]
    order: Literal["together", "in turn", "sampled"] = "together"
    seed: int = 0  # of what is sampled

    def __post_init__(self) -> None:
        if not self.updates:
            raise RecipeError("a schedule has no update, so there is nothing to train")
        if self.order == "together" and len(self.updates) > 1:
            raise RecipeError(
                f"{len(self.updates)} updates cannot be made together, each prepares a batch of its own; put their "
                'objectives into one OneForward, or choose order "in turn" or "sampled"'
            )
        if self.order == "in turn" and any(weight != 1 for _, weight in self.updates):
            raise RecipeError("updates in turn are all made as often: set 1, and the weight of a loss in its update")
        if self.order == "sampled" and (
            min(weight for _, weight in self.updates) < 0 or not any(weight for _, weight in self.updates)
        ):
            raise RecipeError("the weights of sampled updates must not be negative, and one must be above 0")

    def at(self, step: int) -> Update:
        """A pure function of (seed, step), so that every rank and every resumed run agrees."""
        updates, weights = zip(*self.updates, strict=True)
        if self.order == "sampled":
            (drawn,) = Random(f"{self.seed}/{step}").choices(updates, weights)
        else:
            drawn = updates[step % len(updates)]
        chosen: Update = drawn
        return chosen

    @property
    def first(self) -> "Schedule":
        """By what a run is judged: of updates in turn or drawn, the first that is made at all. The losses of the others
        may have another unit."""
        if self.order == "together":
            return self
        return Schedule((next((update, 1.0) for update, weight in self.updates if weight),))

    @property
    def objectives(self) -> list[Objective]:
        return [objective for update, _ in self.updates for objective in update.objectives]

    @property
    def needs(self) -> frozenset[Capability]:
        of_updates = (update.needs for update, _ in self.updates)
        return frozenset().union(*of_updates, *(objective.needs for objective in self.objectives))

    @property
    def compares_pairs(self) -> bool:
        """Whether a text is compared with all pictures of its batch, so that the batch's size counts."""
        return any(isinstance(objective, Similarity) for objective in self.objectives)

    @property
    def heads(self) -> frozenset[str]:
        return frozenset().union(*(objective.heads for objective in self.objectives))

    def check(self, provides: frozenset[Capability], model: str) -> None:
        """Refuse, before any file is read, what the model cannot do."""
        asked = [(", ".join(o.name for o in update.objectives), update.needs) for update, _ in self.updates]
        asked += [(objective.name, objective.needs) for objective in self.objectives]
        for name, needs in asked:
            missing = sorted(needs - provides)
            if missing:
                has = ", ".join(sorted(provides))
                raise RecipeError(
                    f"{name} needs {' and '.join(missing)}, and {model} provides {has}; "
                    "choose another objective or another model"
                )


def together(*objectives: Objective) -> Schedule:
    """All objectives on one forward pass."""
    return Schedule(((OneForward(objectives), 1.0),))
