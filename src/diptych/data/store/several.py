"""Read several stores as one, for pre-training in stages on named data sets."""

from collections.abc import Collection, Container, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from diptych.core import Record, Regions
from diptych.core.contract import PARTS, Part
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError
from diptych.runtime.files import sha256_of_json
from diptych.vision.features.profile import differences

TRAIN = "train"


class SeveralStores(Store):
    """Several stores, each with a name, that are read like a single store.

    The split `train` of each store gets the store's name. Other splits are merged. A key becomes `NAME/KEY`, so that
    keys stay unique. `parts`: the parts of regions that are read. Raises DataError if they differ. Others that
    differ are left out, and `contract` is that of the first store.
    """

    def __init__(self, stores: Mapping[str, Store], parts: Collection[Part] = tuple(PARTS)) -> None:
        self.stores, self.hides_images = dict(stores), False
        first, *others = self.stores.items()
        self.folder, self.contract = first[1].folder, first[1].contract
        for name, store in others:
            if different := differences(self.contract, store.contract, parts):
                raise DataError(
                    f"the features of {name} ({store.folder}) differ from those of {first[0]} ({self.folder}): "
                    f"{'; '.join(different)}; extract one of them again with the other's detector"
                )
        mixed = {part for part in PARTS for _, store in others if differences(self.contract, store.contract, [part])}
        left_out = {"features": ("features", "whole"), "classes": ("classes",)}
        self._left_out: dict[str, Any] = {name: None for part in mixed for name in left_out.get(part, ())}
        self._join(list(self.stores.values()))

    def stored_regions(self, index: int) -> Regions:
        return replace(super().stored_regions(index), **self._left_out)

    @property
    def content(self) -> str:
        return sha256_of_json({name: store.content for name, store in self.stores.items()})

    def words(self, index: int) -> Record:
        number, row = self._locate(index)
        name, record = list(self.stores)[number], self._parts[number].words(row)
        return replace(record, key=f"{name}/{record.key}", split=renamed(name, record.split))

    def rows_of(self, splits: Container[str]) -> npt.NDArray[np.int64]:
        own = [{one for one in store.splits if renamed(name, one) in splits} for name, store in self.stores.items()]
        rows = [start + store.rows_of(one) for start, store, one in zip(self._starts, self._parts, own, strict=False)]
        return np.concatenate(rows)

    @cached_property
    def split_names(self) -> list[str]:
        return [renamed(name, split) for name, store in self.stores.items() for split in store.split_names]


def renamed(store: str, split: str) -> str:
    return store if split == TRAIN else split


def limited(store: Store, limits: Mapping[str, int]) -> Store:
    """Return a copy of a store with fewer records. `limits`: {split: number of its first records to read}."""
    small = copy(store)
    small.limits = limits
    return small
