"""Several stores read as one, each under its name: the sets of a pre-training in stages."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from diptych.core import Record, Regions
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError
from diptych.vision.features.profile import differences

TRAIN = "train"


class SeveralStores(Store):
    """The split `train` of each goes by its store's name, so that recipes can choose; other splits are joined.

    Keys are made unique by the name. All must have been made with the same features.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.stores = dict(stores)
        first, *others = self.stores.items()
        self.folder, self.contract = first[1].folder, first[1].contract
        for name, store in others:
            if different := differences(self.contract, store.contract):
                raise DataError(
                    f"the features of {name} ({store.folder}) are not made as those of {first[0]} ({self.folder}): "
                    f"{'; '.join(different)}; extract one of them again with the other's detector"
                )
        self._starts = np.cumsum([0, *(len(store) for store in self.stores.values())])

    def words(self, index: int) -> Record:
        name, row = self._which(index)
        record = self.stores[name].words(row)
        return replace(record, key=f"{name}/{record.key}", split=_joined(name, record.split))

    @cached_property
    def split_names(self) -> list[str]:
        return [_joined(name, split) for name, store in self.stores.items() for split in store.split_names]

    def _which(self, index: int) -> tuple[str, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        at = int(np.searchsorted(self._starts, index, side="right")) - 1
        return list(self.stores)[at], index - int(self._starts[at])

    def stored_regions(self, index: int) -> Regions:
        name, row = self._which(index)
        return self.stores[name].stored_regions(row)

    def region_count(self, index: int) -> int:
        name, row = self._which(index)
        return self.stores[name].region_count(row)


def _joined(store: str, split: str) -> str:
    return store if split == TRAIN else split
