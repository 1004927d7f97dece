"""A detector as a user names it, with the options that belong to its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.errors import RecipeError, nearest
from diptych.loading.store import DETECTOR
from diptych.models import SYSTEMS
from diptych.runs.detector_files import HUB, from_hub, settings_of
from diptych.runs.folder import INNER
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detector import Detector
from diptych.vision.faster_rcnn import WHOLE_NETWORKS, FasterRCNN, coco_shape
from diptych.vision.given import KIND as GIVEN
from diptych.vision.given import Given
from diptych.vision.grid import Grid
from diptych.vision.ground_truth import GroundTruth
from diptych.vision.image_feature import WithImageFeature
from diptych.vision.load import load_detector
from diptych.vision.selection import EXACTLY_100, SELECTIONS, Selection

GRID = "grid:"
TRUTH = "ground-truth"


def open_detector(
    name: str,
    records: Sequence[Record],
    features: Path | None = None,
    weights: Path | None = None,
    select: str | None = None,
    boxes: str | None = None,
    settings: Sequence[str] = (),
) -> Detector:
    """By name: a detector folder, of a store, of a model or of the run that made one; or what no folder need hold.

    ground-truth    the objects of the records
    given           files in `features`, of any format of `diptych.vision.features`; `boxes` "whole" if they have none
    grid:BACKBONE   cells of a backbone (`diptych.vision.backbones`); `settings`: side=, cells=
    hub:NAME@COMMIT a detector of the Hugging Face hub
    fasterrcnn_...  a torchvision detector with torchvision's 91 classes

    `weights` is a local file or folder of them, where they are not to be downloaded. Raises RecipeError for an unknown
    name and for an option that a kind does not take.
    """
    if (name == GIVEN) != (features is not None):
        raise RecipeError("--detector given and --features PATH belong together: give both, or neither")
    if boxes not in (None, "whole") or (boxes is not None and features is None):
        raise RecipeError(f"--boxes {boxes}: wanted `whole`, with --features PATH that has no boxes")
    options = {"--weights": weights, "--region-selection": select, "--set": tuple(settings) or None}
    if name in (GIVEN, TRUTH) or name.startswith(HUB):
        _only((), options, f"--detector {name}")
    if features is not None:
        return Given.of(features, records, whole_boxes=boxes is not None)
    if name == TRUTH:
        return GroundTruth.of(records)
    if name.startswith(HUB):
        return from_hub(name)
    if name.startswith(GRID):
        _only(("--weights", "--set"), options, "a grid, whose regions are all of its cells")
        return _grid(name.removeprefix(GRID), weights, settings)
    selection = _selection(select)
    if name in WHOLE_NETWORKS:
        _only(("--weights", "--region-selection"), options, name)
        return _of_torchvision(name, weights, selection or EXACTLY_100)
    folder = Path(name)
    for inside in (folder, folder / DETECTOR, folder / INNER / DETECTOR):
        if (inside / "detector.json").is_file():
            _only(("--region-selection",), options, f"{inside}, which has its own")
            return load_detector(inside, selection)
    raise RecipeError(
        f"no detector {name!r}; wanted a folder with detector.json (of a detector, a store or a model), ground-truth, "
        f"given, grid:BACKBONE, hub:NAME@COMMIT, or one of torchvision's: {', '.join(WHOLE_NETWORKS)}"
    )


def _of_torchvision(name: str, weights: Path | None, selection: Selection) -> FasterRCNN:
    if weights is None:
        return FasterRCNN.from_torchvision(name, selection=selection)
    return FasterRCNN.from_file(weights, coco_shape(name), selection)


def with_image_feature(detector: Detector, backbone: str | None) -> Detector:
    """The same regions with the whole picture's feature of a backbone: its name, or a folder of a grid detector."""
    return detector if backbone is None else WithImageFeature(detector, _backbone(backbone, "--image-feature"))


def _backbone(name: str, option: str) -> Backbone:
    if not (Path(name) / "detector.json").is_file():
        return Backbone.of(name)
    grid = load_detector(Path(name))
    if not isinstance(grid, Grid):
        raise RecipeError(
            f"{option} {name} holds {grid.contract.extractor}; wanted a backbone, saved as a grid detector"
        )
    return grid.backbone


def _grid(name: str, weights: Path | None, settings: Sequence[str]) -> Grid:
    values = {"side": None, "cells": None} | settings_of(settings)
    for key, value in values.items():
        if key not in ("side", "cells"):
            raise RecipeError(f"no setting {key!r} of a grid; {nearest(key, ('side', 'cells'))}")
        if value is not None and type(value) is not int:
            raise RecipeError(f"--set {key}={value}: wanted a whole number")
    return Grid(Backbone.of(name, values["side"], weights), values["cells"])


def _only(taken: Sequence[str], options: Mapping[str, Any], what: str) -> None:
    """Refuse options that would be ignored."""
    for name, value in options.items():
        if value is not None and name not in taken:
            raise RecipeError(f"{name} is not for {what}; leave it out")


def _selection(name: str | None) -> Selection | None:
    """A system's rule, or one of the others, by name; None: the detector's own."""
    known = {system: entry.selection for system, entry in SYSTEMS.items()} | dict(SELECTIONS)
    if name is not None and name not in known:
        raise RecipeError(f"no selection {name!r}; {nearest(name, known)}")
    return None if name is None else known[name]
