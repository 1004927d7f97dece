"""The order of training items: a pure function of (seed, step), the same for every rank and resumed run."""

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Int

from diptych.data.store.caching import PickledWithoutCaches

POOL = 50  # batches that are sorted by length together: about 95% fill, and still well mixed


class Order(PickledWithoutCaches):
    """Shuffled batches for all epochs. The items of a batch have similar lengths.

    An epoch drops the last items that do not fill a batch; the next epoch shuffles all items again.
    """

    def __init__(self, lengths: Int[np.ndarray, "N"], batch_size: int, seed: int) -> None:
        self.lengths, self.seed = lengths, seed
        self.batch_size = min(batch_size, len(lengths))
        self.steps_per_epoch = len(lengths) // self.batch_size if len(lengths) else 0

    def batch(self, step: int) -> Int[np.ndarray, "batch"]:
        """Indices of the items of the global batch of this step, longest first."""
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
