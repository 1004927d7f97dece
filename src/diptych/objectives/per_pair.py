"""A loss as formulas write it: summed over what is asked of a pair."""

from dataclasses import dataclass
from random import Random

from torch import Tensor

from diptych.core import Batch, Capability, Model, Objective, Sample, StateRequest, States


@dataclass(frozen=True)
class SummedByPair:
    """An objective whose loss is a sum over what is asked of a pair, and a mean over pairs that belong together, as
    XGPT's Eqs. 2 to 4 and ImageBERT's section 4.3 have it; by itself it is a mean over all that is asked of a batch.
    """

    objective: Objective

    @property
    def name(self) -> str:
        return self.objective.name

    @property
    def needs(self) -> frozenset[Capability]:
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
        """Pairs, also those of which nothing is asked: the loss does not depend on how a batch is cut."""
        return batch.matched.sum()

    def request(self, batch: Batch) -> StateRequest:
        return self.objective.request(batch)

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        return self.objective.loss(model, states, batch)
