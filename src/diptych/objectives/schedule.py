"""The schedule of updates, which chooses the update of each optimizer step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, cast

import torch
from torch import nn

from diptych.core import Batch, Capability, ComparesSamples, Method, Needs, Objective, Update
from diptych.objectives.updates import OneForward
from diptych.runtime.errors import RecipeError


@dataclass(frozen=True)
class Schedule:
    """Updates with weights, and the order in which they take optimizer steps.

    together   a single update, used in every step
    in turn    the updates alternate, one step each (XGPT). Losses are weighted inside an update (`OneForward.weights`)
    sampled    each step draws an update, with probability proportional to its weight
    """

    updates: Sequence[tuple[Update, float]]
    order: Literal["together", "in turn", "sampled"] = "together"
    seed: int = 0  # seed of the random order, with order="sampled"

    def __post_init__(self) -> None:
        if not self.updates:
            raise RecipeError("a schedule has no update, so there is nothing to train; add an update")
        if self.order == "together" and len(self.updates) > 1:
            raise RecipeError(
                f"{len(self.updates)} updates cannot share a step, because each prepares its own batch; put their "
                'objectives into one OneForward, or choose order "in turn" or "sampled"'
            )
        weights = [weight for _, weight in self.updates]
        if self.order == "in turn" and any(weight != 1 for weight in weights):
            raise RecipeError(
                'order="in turn" uses all updates equally often; set their weights to 1, and weight losses in an update'
            )
        if self.order == "sampled" and (min(weights) < 0 or not any(weights)):
            raise RecipeError("the weights of sampled updates must not be negative, and at least one must be above 0")

    def at(self, step: int) -> Update:
        """Return the update of a step. It depends only on (seed, step), so that all ranks and resumed runs agree."""
        updates, weights = zip(*self.updates, strict=True)
        if self.order == "sampled":
            return cast(Update, Random(f"{self.seed}/{step}").choices(updates, weights)[0])
        return cast(Update, updates[step % len(updates)])

    @property
    def first(self) -> "Schedule":
        """The schedule whose losses measure the progress of a run.

        Unless the order is "together", it has only the first update with a nonzero weight, because losses of different
        updates may have different units.
        """
        if self.order == "together":
            return self
        return Schedule((next((update, 1.0) for update, weight in self.updates if weight),))

    @property
    def watched(self) -> str:
        """Name of the objective by whose likelihood the final weights are chosen.

        It is the first objective that predicts words, or else the first objective."""
        objectives = self.first.objectives
        return next((one for one in objectives if "word" in one.heads), objectives[0]).name

    @torch.no_grad()
    def likelihood(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """Return the mean log-likelihood of the watched objective's targets.

        `batches` must have been prepared by this schedule.
        """
        was_training, device = model.training, next(model.parameters()).device
        model.eval()
        total = count = 0.0
        for step, batch in enumerate(batches):
            update, here = self.at(step), batch.to(device)
            total += float(next(update.losses(model, here))[self.watched])
            count += float(update.counts(here)[self.watched])
        model.train(was_training)
        return -total / max(count, 1)

    @property
    def objectives(self) -> list[Objective]:
        return [objective for update, _ in self.updates for objective in update.objectives]

    @property
    def needs(self) -> Needs:
        of_updates = (update.needs for update, _ in self.updates)
        return frozenset().union(*of_updates, *(objective.needs for objective in self.objectives))

    @property
    def compares_pairs(self) -> bool:
        """True if an objective compares each text with all images of the micro-batch.

        The loss then depends on the number of these images.
        """
        return any(isinstance(one, ComparesSamples) and one.compares == "batch" for one in self.objectives)

    @property
    def heads(self) -> frozenset[str]:
        return frozenset().union(*(objective.heads for objective in self.objectives))

    def check(self, provides: frozenset[Capability], model: str, kind: type | None = None) -> None:
        """Raise RecipeError if the model lacks a capability that the schedule needs.

        `provides`: the model's capabilities. `model`: its name, for the error. `kind`: its class, in which the methods
        that objectives need are looked up.
        """
        needed = [(", ".join(o.name for o in update.objectives), update.needs) for update, _ in self.updates]
        needed += [(objective.name, objective.needs) for objective in self.objectives]
        for name, needs in needed:
            lacking = [need for need in needs - provides if not isinstance(need, Method) or not hasattr(kind, need)]
            if missing := sorted(f"a method {need}" if isinstance(need, Method) else need for need in lacking):
                has = ", ".join(sorted(provides))
                raise RecipeError(
                    f"{name} needs {' and '.join(missing)}, but {model} provides {has}; "
                    "choose another objective or another model"
                )


def together(*objectives: Objective) -> Schedule:
    """Return a schedule with one update, in which the objectives share a forward pass."""
    return Schedule(((OneForward(objectives), 1.0),))
