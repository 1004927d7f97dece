"""Which items make which batch: a pure function of (seed, step), so that every rank and every resume agree."""

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

POOL = 50  # batches that are sorted by length together: about 95% fill, and still well mixed


class Order:
    """Epoch after epoch of shuffled batches, items of like length together.

    An epoch leaves out the last items that do not fill a batch; the next epoch shuffles anew.
    """

    def __init__(self, lengths: Int[np.ndarray, "N"], batch_size: int, seed: int) -> None:
        self.lengths, self.seed = lengths, seed
        self.batch_size = min(batch_size, len(lengths))
        self.steps_per_epoch = len(lengths) // self.batch_size if len(lengths) else 0
        self._remember()

    def _remember(self) -> None:
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_epoch"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._remember()

    def batch(self, step: int) -> Int[np.ndarray, "batch"]:
        """Indices of the items of the global batch of this step, longest first."""
        epoch, within = divmod(step, self.steps_per_epoch)
        chosen: Int[np.ndarray, "batch"] = self._epoch(epoch)[within]
        return chosen

    def _shuffled(self, epoch: int) -> Int[np.ndarray, "steps batch"]:
        rng = np.random.default_rng([self.seed, epoch])
        items = rng.permutation(len(self.lengths))[: self.steps_per_epoch * self.batch_size]
        pool = POOL * self.batch_size
        pools = [items[start : start + pool] for start in range(0, len(items), pool)]
        by_length = np.concatenate([p[np.argsort(-self.lengths[p], kind="stable")] for p in pools])
        return rng.permutation(by_length.reshape(self.steps_per_epoch, self.batch_size))
