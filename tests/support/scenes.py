"""Stores of drawn scenes whose regions are the ground truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.data.store.store import Store
from diptych.vision.detectors.ground_truth import GroundTruth

# Sizes of a model that trains in a second.
TINY = ("model.width=16", "model.heads=2", "model.layers=1", "model.ffn=32")


def scene_store(
    folder: Path,
    splits: Mapping[str, int],
    detector: bool = False,
    change: Callable[[int, Record], Record] = lambda number, record: record,
) -> Store:
    """Write the first scenes of each split, and the detector if wanted. `change`: of a record, by its number."""
    from diptych_world.book import record
    from diptych_world.layout import scene

    drawn = [record(scene(0, split, number)) for split, count in splits.items() for number in range(count)]
    records = [change(number, one) for number, one in enumerate(drawn)]
    extract(records, GroundTruth.of(records), folder)
    if detector:
        GroundTruth.of(records).save(folder / "detector")
    return Store(folder)
