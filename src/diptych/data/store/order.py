"""The order of training samples. It depends only on (seed, step), so all ranks and resumed runs have the same order."""

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Int

from diptych.data.store.caching import PickledWithoutCaches

# Samples of this many batches are sorted by length together. About 5% of a batch is then padding, and the order is
# still random enough.
POOL = 50


class Order(PickledWithoutCaches):
    """Shuffled batches for all epochs.

    The samples of a batch have similar lengths. At the end of an epoch, samples that do not fill a batch are dropped.
    The next epoch shuffles all samples again.
    """

    def __init__(self, lengths: Int[np.ndarray, "N"], batch_size: int, seed: int) -> None:
        self.lengths, self.seed = lengths, seed
        self.batch_size = min(batch_size, len(lengths))
        self.steps_per_epoch = len(lengths) // self.batch_size if len(lengths) else 0

    def batch(self, step: int) -> Int[np.ndarray, "batch"]:
        """Return the indices of the samples in the global batch of a step, longest sample first."""
        epoch, within = divmod(step, self.steps_per_epoch)
        chosen: Int[np.ndarray, "batch"] = self._epoch(epoch)[within]
        return chosen

    @cached_property
    def _epoch(self) -> Callable[[int], Int[np.ndarray, "steps batch"]]:
        return lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> Int[np.ndarray, "steps batch"]:
        rng = np.random.default_rng([self.seed, epoch])
        items = rng.permutation(len(self.lengths))[: self.steps_per_epoch * self.batch_size]
        pool = POOL * self.batch_size
        pools = [items[start : start + pool] for start in range(0, len(items), pool)]
        by_length = np.concatenate([p[np.argsort(-self.lengths[p], kind="stable")] for p in pools])
        return rng.permutation(by_length.reshape(self.steps_per_epoch, self.batch_size))
