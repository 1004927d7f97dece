"""From scores by seed to a verdict: the difference of a claim, paired by seed, with a 95% interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["seen", "reversed", "too close", "not seen", "not run"]
CLOSE = 1.0  # points: an interval within them means that there is no difference worth a claim
LEAST_SEEDS = 3
# Of Student's distribution, 97.5%, by degrees of freedom from 1 on; those of 10 for more, which is on the safe side.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Difference:
    """In points, over seeds; the interval is Student's."""

    value: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> Verdict:
        if self.seeds < LEAST_SEEDS:
            return "not run"
        if self.low > 0:
            return "seen"
        if self.high < 0:
            return "reversed"
        return "too close" if max(abs(self.low), abs(self.high)) <= CLOSE else "not seen"


def difference(by_seed: Sequence[float]) -> Difference:
    """Of one number a seed. The interval of a single one is endless."""
    count = len(by_seed)
    mean = sum(by_seed) / count
    if count < 2:
        return Difference(mean, -math.inf, math.inf, count)
    spread = math.sqrt(sum((value - mean) ** 2 for value in by_seed) / (count - 1))
    reach = STUDENT[min(count - 1, len(STUDENT)) - 1] * spread / math.sqrt(count)
    return Difference(mean, mean - reach, mean + reach, count)
