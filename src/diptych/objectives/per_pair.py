"""Losses normalised by pairs instead of by targets, as the papers' formulas have it."""

from dataclasses import dataclass
from random import Random

from torch import Tensor

from diptych.core import Batch, Needs, Objective, Sample, StateModel, StateRequest, States


@dataclass(frozen=True)
class SummedByPair:
    """Wrap an objective: its loss becomes a sum over the targets of a pair and a mean over matched pairs.

    XGPT, Eqs. 2 to 4; ImageBERT, section 4.3. Unwrapped, losses are means over all targets of a batch.
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
        """Number of matched pairs, those without targets included: so the loss does not depend on micro-batches."""
        return batch.matched.sum()

    def request(self, batch: Batch) -> StateRequest:
        return self.objective.request(batch)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        return self.objective.loss(model, states, batch)
