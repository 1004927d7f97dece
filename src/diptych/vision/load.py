"""Open the eyes that a folder holds."""

from __future__ import annotations

from pathlib import Path

from diptych.errors import CheckpointError, RecipeError, nearest
from diptych.vision.eyes import Eyes
from diptych.vision.faster_rcnn import FasterRCNN
from diptych.vision.given import Given
from diptych.vision.grid import Grid
from diptych.vision.ground_truth import GroundTruth
from diptych.vision.selection import Selection
from diptych.vision.storybook_detector import StorybookDetector
from diptych.vision.weights import EYES, WEIGHTS, read_eyes, read_weights
from diptych.vision.whole import REGIONS, WithWhole

KINDS = ("ground-truth", "given", "storybook-detector", "faster-rcnn", "grid", "with-whole")


def load_eyes(folder: Path, selection: Selection | None = None) -> Eyes:
    """From a folder that `Eyes.save` wrote. Nothing in it points outside, so it may be moved.

    A detector may be given another rule for its regions than the one it was saved with; its contract then says so.
    """
    eyes = _load(folder)
    if selection is not None:
        detector = eyes.regions if isinstance(eyes, WithWhole) else eyes
        if not isinstance(detector, StorybookDetector | FasterRCNN):
            raise RecipeError(f"{eyes.contract.extractor} finds no boxes to select from; leave the selection out")
        detector.selection = selection
    return eyes


def _load(folder: Path) -> Eyes:
    described = read_eyes(folder)
    source = str(folder / WEIGHTS)
    try:
        match described["kind"]:
            case "ground-truth":
                return GroundTruth(described["kinds"], described["attributes"], described.get("masks", False))
            case "given":
                return Given(described["feature_size"], described["class_names"])
            case "storybook-detector":
                return StorybookDetector.from_folder(described, read_weights(folder, described), source)
            case "faster-rcnn":
                return FasterRCNN.from_folder(described, read_weights(folder, described), source)
            case "grid":
                return Grid.from_folder(described, read_weights(folder, described), source)
            case "with-whole":
                inner = _load(folder / REGIONS)
                return WithWhole.from_folder(described, read_weights(folder, described), source, inner)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / EYES} is damaged ({error!r}); copy the folder again") from error
    raise CheckpointError(f"{folder / EYES} is of an unknown kind; {nearest(str(described['kind']), KINDS)}")
