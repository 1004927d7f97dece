"""Open the detector that a folder holds. A kind's module is imported when a folder of it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from diptych.runtime.errors import CheckpointError, RecipeError, nearest
from diptych.runtime.plugins import load_plugins
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.weights import DETECTOR, WEIGHTS, read_detector, read_weights

REGIONS = "regions"  # the subfolder of a detector that another one wraps


@dataclass(frozen=True)
class DetectorKind:
    """A kind of detector: a class with `from_folder(described, weights, source)`, or another builder."""

    place: str  # MODULE:CLASS
    weights: bool = True  # False: its folder holds no weights, and it is built by `from_described(described)`
    wraps: bool = False  # True: its folder holds a second detector in `regions`, which the builder takes too


_IN = "diptych.vision.detectors"
DETECTORS: dict[str, DetectorKind] = {  # by the `kind` of detector.json
    "ground-truth": DetectorKind(f"{_IN}.ground_truth:GroundTruth", weights=False),
    "given": DetectorKind(f"{_IN}.given:Given", weights=False),
    "storybook-detector": DetectorKind("diptych.storybook.detector.detector:StorybookDetector"),
    "faster-rcnn": DetectorKind(f"{_IN}.faster_rcnn:FasterRCNN"),
    "grid": DetectorKind(f"{_IN}.grid:Grid"),
    "official": DetectorKind(f"{_IN}.official.detector:OfficialDetector"),
    "pooled": DetectorKind(f"{_IN}.pooled:PooledDetector"),
    "with-whole": DetectorKind(f"{_IN}.image_feature:WithImageFeature", wraps=True),
}


def load_detector(folder: Path, selection: Selection | None = None) -> Detector:
    """From a folder that `Detector.save` wrote. Nothing in it points outside, so it may be moved.

    A detector may be given another rule for its regions than the one it was saved with; its contract then says so.
    """
    detector = _load(folder)
    if selection is not None:
        finder: Any = getattr(detector, "regions", detector)  # of one that adds a feature of the whole image
        if not isinstance(getattr(finder, "selection", None), Selection):
            raise RecipeError(
                f"{finder.contract.extractor} takes no other selection of regions than its own; leave it out"
            )
        finder.selection = selection
    return detector


def _load(folder: Path) -> Detector:
    described = read_detector(folder)
    if (kind := DETECTORS.get(str(described["kind"]))) is None:
        load_plugins()  # a process that extracts may know none yet
        kind = DETECTORS.get(str(described["kind"]))
    if kind is None:
        known = nearest(str(described["kind"]), DETECTORS)
        raise CheckpointError(f"{folder / DETECTOR} is of an unknown kind; {known}")
    module, _, name = kind.place.partition(":")
    made: Any = getattr(import_module(module), name)
    try:
        if not kind.weights:
            detector: Detector = made.from_described(described)
            return detector
        inner = (_load(folder / REGIONS),) if kind.wraps else ()
        found: Detector = made.from_folder(described, read_weights(folder, described), str(folder / WEIGHTS), *inner)
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / DETECTOR} is damaged ({error!r}); copy the folder again") from error
