"""Logistic regression on a table of features, with its AUC and a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from diptych.metrics.auroc import auroc
from diptych.metrics.bootstrap import resampled_interval
from diptych.runtime.errors import CheckpointError, DataError, explained
from diptych.runtime.files import refuse_endless, write_atomically

WEIGHTS = "weights.safetensors"
ROUNDS, ENOUGH = 50, 1e-8
HELD_OUT = 4  # every fourth image is held out
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Logistic:
    """A logistic regression. Features are scaled to mean 0 and standard deviation 1."""

    mean: Table
    spread: Table
    weights: Table
    bias: float

    @classmethod
    def fit(cls, features: Table, labels: NDArray[np.bool_], ridge: float = 1.0) -> Logistic:
        """Fit a logistic regression with Newton's method.

        `features`: (N, F). `ridge`: factor of the squared weights in the loss. Raises DataError if all labels are
        equal.
        """
        if labels.all() or not labels.any():
            raise DataError(f"all {len(labels)} labels are {bool(labels.any())}; add some that are {not labels.any()}")
        mean, spread = features.mean(0), features.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        table = np.hstack([(features - mean) / spread, np.ones((len(features), 1))])
        penalty = np.full(table.shape[1], ridge)
        penalty[-1] = 1e-6
        weights = np.zeros(table.shape[1])
        for _ in range(ROUNDS):
            predicted = _sigmoid(table @ weights)
            slope = table.T @ (predicted - labels) + penalty * weights
            curve = (table * (predicted * (1 - predicted))[:, None]).T @ table + np.diag(penalty)
            step = np.linalg.solve(curve, slope)
            weights -= step
            if float(np.abs(step).max()) < ENOUGH:
                break
        return cls(mean, spread, weights[:-1], float(weights[-1]))

    def __call__(self, features: Table) -> Table:
        """Return the probability of the label True for each row: (N, F) -> (N,)."""
        scores: Table = _sigmoid((features - self.mean) / self.spread @ self.weights + self.bias)
        return scores

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"mean": self.mean, "spread": self.spread, "weights": self.weights, "bias": np.array([self.bias])}
        write_atomically(folder / WEIGHTS, save(tensors))

    @classmethod
    def load(cls, folder: Path, features: int) -> Logistic:
        """Read a model from a folder.

        Raises CheckpointError if the file is missing or damaged, or does not have `features` finite weights.
        """
        path = folder / WEIGHTS
        with explained(CheckpointError, f"cannot read {path}", "train the model again", SafetensorError):
            refuse_endless(path)
            tensors = load_file(path)
            model = cls(tensors["mean"], tensors["spread"], tensors["weights"], float(tensors["bias"][0]))
        sizes = {len(model.mean), len(model.spread), len(model.weights)}
        if sizes != {features} or not all(np.isfinite(array).all() for array in tensors.values()):
            raise CheckpointError(f"{path} has {sorted(sizes)} weights, expected {features} finite ones; train again")
        return model


def fit_and_test(
    features: Table, labels: NDArray[np.bool_], test: NDArray[np.bool_], groups: NDArray[Any], precision: float
) -> tuple[Logistic, float, dict[str, Any]]:
    """Fit on the rows outside `test`, and choose the threshold on the rows in `test`.

    Returns the model, the threshold that reaches `precision` (0 to 1), and a dict with the AUC and its interval for the
    model card.
    """
    model = Logistic.fit(features[~test], labels[~test])
    scores, truth = model(features[test]), labels[test]
    images = [str(group) for group in groups[test]]
    auc = resampled_interval(lambda rows: auroc(scores[rows], truth[rows]), images)
    card = {
        "held_out": int(test.sum()),
        "auc": round(auc.value, 4),
        "interval": [round(auc.low, 4), round(auc.high, 4)],
    }
    return model, threshold(scores, truth, precision), card


def _sigmoid(values: Table) -> Table:
    result: Table = 1 / (1 + np.exp(-np.clip(values, -60, 60)))
    return result


def threshold(scores: Table, labels: NDArray[np.bool_], precision: float) -> float:
    """Return the lowest threshold for which at least the share `precision` of the rows above it is true.

    If no threshold reaches this, return the highest score.
    """
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(labels[order]) / np.arange(1, len(order) + 1)
    ends = np.append(scores[order][1:] != scores[order][:-1], True)
    good = np.flatnonzero((right >= precision) & ends)
    return float(scores[order][good[-1]]) if len(good) else float(scores.max(initial=1.0))
