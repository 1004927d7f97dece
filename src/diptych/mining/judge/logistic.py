"""Logistic regression on a table of features, and what its scores are worth: all that a weak model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import refuse_endless

WEIGHTS = "weights.safetensors"
ROUNDS, ENOUGH = 50, 1e-8
DRAWS = 1_000  # of the bootstrap
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Logistic:
    """Features are brought to mean 0 and spread 1 first."""

    mean: Table
    spread: Table
    weights: Table
    bias: float

    @classmethod
    def fit(cls, features: Table, labels: NDArray[np.bool_], ridge: float = 1.0) -> Logistic:
        """Newton's method with a penalty of `ridge` on squared weights. Raises DataError where one label is missing."""
        if labels.all() or not labels.any():
            raise DataError(f"all {len(labels)} labels are {bool(labels.any())}; wanted some of both kinds: label more")
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
        """Probabilities."""
        scores: Table = _sigmoid((features - self.mean) / self.spread @ self.weights + self.bias)
        return scores

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"mean": self.mean, "spread": self.spread, "weights": self.weights, "bias": np.array([self.bias])}
        save_file(tensors, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path, features: int) -> Logistic:
        """Raises CheckpointError for a file that is missing, damaged, not finite or of another number of features."""
        path = folder / WEIGHTS
        try:
            refuse_endless(path)
            tensors = load_file(path)
            found = cls(tensors["mean"], tensors["spread"], tensors["weights"], float(tensors["bias"][0]))
        except (OSError, SafetensorError, KeyError, IndexError) as error:
            raise CheckpointError(f"cannot read {path}: {error}; train it again") from error
        sizes = {len(found.mean), len(found.spread), len(found.weights)}
        if sizes != {features} or not all(np.isfinite(array).all() for array in tensors.values()):
            raise CheckpointError(f"{path} has {sorted(sizes)} weights, wanted {features} finite ones; train it again")
        return found


def _sigmoid(values: Table) -> Table:
    result: Table = 1 / (1 + np.exp(-np.clip(values, -60, 60)))
    return result


def auc(scores: Sequence[float] | Table, labels: Sequence[bool] | NDArray[np.bool_]) -> float:
    """How often a true one scores higher than a false one; ties count half. NaN where one kind is missing."""
    values, true = np.asarray(scores, float), np.asarray(labels, bool)
    positives, negatives = int(true.sum()), int((~true).sum())
    if not positives or not negatives:
        return float("nan")
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[where]
    return float((ranks[true].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def auc_interval(
    scores: Table, labels: NDArray[np.bool_], groups: NDArray[np.int64], seed: int = 0
) -> tuple[float, float]:
    """95% of bootstrapped AUCs, whole groups (pictures) drawn at a time."""
    rng = np.random.default_rng(seed)
    names = np.unique(groups)
    rows = {name: np.flatnonzero(groups == name) for name in names}
    drawn = []
    for _ in range(DRAWS):
        some = np.concatenate([rows[name] for name in rng.choice(names, len(names))])
        drawn.append(auc(scores[some], labels[some]))
    low, high = np.nanquantile(drawn, (0.025, 0.975)) if not np.isnan(drawn).all() else (np.nan, np.nan)
    return float(low), float(high)


def threshold(scores: Table, labels: NDArray[np.bool_], precision: float) -> float:
    """The least score from which on at least this share is true; the greatest score where none is."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(labels[order]) / np.arange(1, len(order) + 1)
    ends = np.append(scores[order][1:] != scores[order][:-1], True)
    good = np.flatnonzero((right >= precision) & ends)
    return float(scores[order][good[-1]]) if len(good) else float(scores.max(initial=1.0))
