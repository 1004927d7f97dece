"""Temperature scaling of answer probabilities (Guo et al., On Calibration of Modern Neural Networks, 2017, 4.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

FEWEST = 100  # minimum number of validation questions with answers, to fit a temperature
BINS = 15
TEMPERATURES = torch.logspace(-1, 1, 201).tolist()  # temperatures that are tried, from 0.1 to 10; the middle one is 1


@dataclass(frozen=True)
class Calibration:
    """A fitted temperature, and the limit of the answers that are not sure.

    The calibration errors before and after scaling (times 100) are measured on the same questions.
    """

    temperature: float
    before: float
    after: float
    questions: int
    sure_above: float  # answers with this probability or a lower one are not sure

    @property
    def line(self) -> str:
        errors = f"{self.after:.1f}, before scaling {self.before:.1f}"
        return f"temperature of answers {self.temperature:.2f}: calibration error {errors}"


def calibration_error(probabilities: Float[Tensor, "N"], right: Float[Tensor, "N"]) -> float:
    """Return the expected calibration error, 0 to 1: the mean of |confidence - accuracy| over 15 equal bins."""
    bins = (probabilities * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS).index_add_(0, bins, (probabilities - right).float())
    return float(gaps.abs().sum() / len(right))


def fit_temperature(probable: Callable[[float], Float[Tensor, "N"]], right: Float[Tensor, "N"]) -> Calibration:
    """Choose the temperature that minimises the cross-entropy of answer probabilities with the answers' accuracies.

    It is 1 if the best one raises the calibration error.

    `probable(temperature)` returns the probability of each predicted answer. `right` is its accuracy, 0 to 1.
    """
    costs = [float(binary_cross_entropy(probable(t).clamp(0, 1).float(), right.float())) for t in TEMPERATURES]
    best = TEMPERATURES[costs.index(min(costs))]
    before, after = (100 * calibration_error(probable(t), right) for t in (1.0, best))
    if after > before:
        best, after = 1.0, before
    return Calibration(best, before, after, len(right), unsure(probable(best), right))


def unsure(probabilities: Float[Tensor, "N"], right: Float[Tensor, "N"]) -> float:
    """Return the limit, 0 to 1, up to which answers are more often wrong than right.

    Of all limits, it is the one above which right answers exceed wrong ones by most. Equal probabilities are on one
    side. `right` is the accuracy of each answer, 0 to 1.
    """
    sorted_, order = probabilities.double().sort(descending=True)
    most, limit, excess = 0.0, 1.0, 0.0
    for value, accuracy, lower in zip(
        sorted_.tolist(), right[order].tolist(), [*sorted_.tolist()[1:], 0.0], strict=True
    ):
        excess += accuracy - 0.5
        if excess > most and lower < value:
            most, limit = excess, lower
    return limit
