"""Compute the verdict on a claim from its difference in each seed, with a 95% interval of Student's distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["seen", "reversed", "too close", "not seen", "not run"]
CLOSE = 1.0  # points; if the interval is within ±CLOSE, the difference is negligible
LEAST_SEEDS = 3
# 97.5% quantiles of Student's distribution for 1 to 10 degrees of freedom. The last also serves for more than 10, which
# makes intervals slightly too wide.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Difference:
    """The mean difference over seeds, in points, with Student's 95% interval (`low` to `high`)."""

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
    """Return the mean of the differences, one for each seed, with its interval. With one seed, the interval is
    infinite."""
    count = len(by_seed)
    mean = sum(by_seed) / count
    if count < 2:
        return Difference(mean, -math.inf, math.inf, count)
    spread = math.sqrt(sum((value - mean) ** 2 for value in by_seed) / (count - 1))
    reach = STUDENT[min(count - 1, len(STUDENT)) - 1] * spread / math.sqrt(count)
    return Difference(mean, mean - reach, mean + reach, count)
