"""Open the detector that a folder holds. What needs torchvision is imported for its own kind alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diptych.errors import CheckpointError, RecipeError, nearest
from diptych.vision.detector import Detector
from diptych.vision.given import Given
from diptych.vision.ground_truth import GroundTruth
from diptych.vision.selection import Selection
from diptych.vision.storybook_detector import StorybookDetector
from diptych.vision.weights import DETECTOR, WEIGHTS, read_detector, read_weights

if TYPE_CHECKING:
    from diptych.vision.faster_rcnn import FasterRCNN
    from diptych.vision.grid import Grid
    from diptych.vision.official.detector import OfficialDetector
    from diptych.vision.pooled import PooledDetector

KINDS = ("ground-truth", "given", "storybook-detector", "faster-rcnn", "grid", "official", "pooled", "with-whole")


def load_detector(folder: Path, selection: Selection | None = None) -> Detector:
    """From a folder that `Detector.save` wrote. Nothing in it points outside, so it may be moved.

    A detector may be given another rule for its regions than the one it was saved with; its contract then says so.
    """
    detector = _load(folder)
    if selection is not None:
        from diptych.vision.faster_rcnn import FasterRCNN
        from diptych.vision.image_feature import WithImageFeature
        from diptych.vision.pooled import PooledDetector

        finder = detector.regions if isinstance(detector, WithImageFeature) else detector
        if not isinstance(finder, StorybookDetector | FasterRCNN | PooledDetector):
            raise RecipeError(
                f"{finder.contract.extractor} takes no other selection of regions than its own; leave it out"
            )
        finder.selection = selection
    return detector


def _load(folder: Path) -> Detector:
    described = read_detector(folder)
    source = str(folder / WEIGHTS)
    try:
        match described["kind"]:
            case "ground-truth":
                return GroundTruth(described["kinds"], described["attributes"], described.get("masks", False))
            case "given":
                return Given.from_described(described)
            case "storybook-detector":
                return StorybookDetector.from_folder(described, read_weights(folder, described), source)
            case "faster-rcnn" | "grid" | "official" | "pooled" as kind:
                return _of_torchvision(kind).from_folder(described, read_weights(folder, described), source)
            case "with-whole":
                from diptych.vision.image_feature import REGIONS, WithImageFeature

                inner = _load(folder / REGIONS)
                return WithImageFeature.from_folder(described, read_weights(folder, described), source, inner)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / DETECTOR} is damaged ({error!r}); copy the folder again") from error
    raise CheckpointError(f"{folder / DETECTOR} is of an unknown kind; {nearest(str(described['kind']), KINDS)}")


def _of_torchvision(kind: str) -> type[FasterRCNN | Grid | OfficialDetector | PooledDetector]:
    match kind:
        case "faster-rcnn":
            from diptych.vision.faster_rcnn import FasterRCNN

            return FasterRCNN
        case "grid":
            from diptych.vision.grid import Grid

            return Grid
        case "pooled":
            from diptych.vision.pooled import PooledDetector

            return PooledDetector
    from diptych.vision.official.detector import OfficialDetector

    return OfficialDetector
