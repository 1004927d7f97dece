"""Losses that are averaged over pairs instead of over targets, as in the papers' formulas."""

from dataclasses import dataclass
from random import Random

from torch import Tensor

from diptych.core import Batch, Needs, Objective, Sample, StateModel, StateRequest, States


@dataclass(frozen=True)
class SummedByPair:
    """An objective whose loss is summed over the targets of each pair, then averaged over matched pairs.

    XGPT (Eqs. 2 to 4) and ImageBERT (section 4.3) define their losses in this way. Without this wrapper, a loss is
    the mean over all targets of a batch.
    """

    objective: Objective

    @property
    def name(self) -> str:
        return self.objective.name

    @property
    def needs(self) -> Needs:
        return self.objective.needs

    @property
    def heads(self) -> frozenset[str]:
        return self.objective.heads

    @property
    def changes(self) -> str:
        return self.objective.changes

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return self.objective.prepare(samples, rng)

    def count(self, batch: Batch) -> Tensor:
        """Return the number of matched pairs.

        Pairs without targets are counted too, so that the loss does not depend on the division into micro-batches.
        """
        return batch.matched.sum()

    def request(self, batch: Batch) -> StateRequest:
        return self.objective.request(batch)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        return self.objective.loss(model, states, batch)
