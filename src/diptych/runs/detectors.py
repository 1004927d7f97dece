"""A detector as a user names it, with the options that belong to its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.data.store.store import DETECTOR
from diptych.runs.detector_files import (
    HUB,
    fetched,
    from_hub,
    import_detector,
    line_of,
    names_of,
    refuse_existing,
    save_whole,
    settings_of,
)
from diptych.runs.folder import INNER
from diptych.runtime.errors import RecipeError, nearest
from diptych.systems import SYSTEMS
from diptych.vision.backbones import of_onnx
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.faster_rcnn import WHOLE_NETWORKS, FasterRCNN, coco_shape
from diptych.vision.detectors.given import KIND as GIVEN
from diptych.vision.detectors.given import Given
from diptych.vision.detectors.grid import Grid
from diptych.vision.detectors.ground_truth import KIND as TRUTH
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych.vision.detectors.image_feature import WithImageFeature
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.pooled import PooledDetector
from diptych.vision.detectors.proposers.of_onnx import OnnxProposer, is_backbone
from diptych.vision.detectors.proposers.of_transformers import TransformersProposer
from diptych.vision.detectors.selection import EXACTLY_100, SELECTIONS, Selection

GRID, HF, ONNX = "grid:", "hf:", "onnx:"
# Which options a network takes besides --region-selection.
TAKEN: Mapping[str, tuple[str, ...]] = {
    "hf": ("--weights", "--backbone"), "onnx": ("--set", "--backbone", "--class-names"),
    **dict.fromkeys(WHOLE_NETWORKS, ("--weights",)),
}  # fmt: skip


def open_detector(
    name: str,
    records: Sequence[Record],
    features: Path | None = None,
    weights: Path | None = None,
    select: str | None = None,
    boxes: str | None = None,
    settings: Sequence[str] = (),
    backbone: str | None = None,
    class_names: Sequence[str] = (),
    tell: Callable[[str], object] = lambda _: None,
) -> Detector:
    """By name: a detector folder, of a store, of a model or of the run that made one; or what no folder need hold.

    ground-truth    the objects of the records
    given           files in `features`, of any format of `diptych.vision.features`; `boxes` "whole" if they have none
    grid:BACKBONE   cells of a backbone (`diptych.vision.backbones`); `settings`: side=, cells=
    hf:NAME         boxes of a detector of transformers, features of `backbone`
    onnx:FILE       an ONNX network, told by `settings`: boxes, with features of `backbone` or its own, or a grid
    hub:NAME@COMMIT a detector of the Hugging Face hub
    fasterrcnn_...  a torchvision detector with torchvision's 91 classes

    `weights` is a local file or folder of them, where they are not to be downloaded; `backbone` a name of one, a folder
    of a grid detector, or onnx:FILE. `tell` hears what was guessed of an ONNX file. Raises RecipeError for an
    unknown name and for an option that a kind does not take.
    """
    if (name == GIVEN) != (features is not None):
        raise RecipeError("--detector given and --features PATH belong together: give both, or neither")
    if boxes not in (None, "whole") or (boxes is not None and features is None):
        raise RecipeError(f"--boxes {boxes}: wanted `whole`, with --features PATH that has no boxes")
    options = {"--weights": weights, "--region-selection": select, "--set": tuple(settings) or None,
               "--backbone": backbone, "--class-names": tuple(class_names) or None}  # fmt: skip
    rule = _selection(select)
    if name in (GIVEN, TRUTH) or name.startswith(HUB):
        _only((), options, f"--detector {name}")
    if features is not None:
        return Given.of(features, records, whole_boxes=boxes is not None)
    if name.startswith(HUB):
        return from_hub(name)
    if name.startswith(GRID):
        _only(("--weights", "--set"), options, "a grid, whose regions are all of its cells")
        return _grid(name.removeprefix(GRID), weights, settings)
    if name.startswith((HF, ONNX)) or name in WHOLE_NETWORKS:
        _only((*TAKEN[name.partition(":")[0]], "--region-selection"), options, f"--detector {name}")
        if name.startswith(ONNX):
            return _onnx(name, settings_of(settings), backbone, rule, class_names, tell)
        return _with_network(name, weights, backbone, rule or EXACTLY_100)
    return GroundTruth.of(records) if name == TRUTH else _of_folder(name, rule, options)


def _with_network(name: str, weights: Path | None, backbone: str | None, rule: Selection) -> Detector:
    if name.startswith(HF):
        return PooledDetector(TransformersProposer.of(name.removeprefix(HF), weights), _maybe(backbone), rule)
    if weights is None:
        return FasterRCNN.from_torchvision(name, selection=rule)
    return FasterRCNN.from_file(weights, coco_shape(name), rule)


def _of_folder(name: str, rule: Selection | None, options: Mapping[str, Any]) -> Detector:
    folder = Path(name)
    for inside in (folder, folder / DETECTOR, folder / INNER / DETECTOR):
        if (inside / "detector.json").is_file():
            _only(("--region-selection",), options, f"{inside}, which has its own")
            return load_detector(inside, rule)
    raise RecipeError(
        f"no detector {name!r}; wanted a folder with detector.json (of a detector, a store or a model), ground-truth, "
        "given, grid:BACKBONE, hf:NAME, onnx:FILE, hub:NAME@COMMIT, or one of torchvision's: "
        + ", ".join(WHOLE_NETWORKS)
    )


def with_image_feature(detector: Detector, backbone: str | None) -> Detector:
    """The same regions with the whole picture's feature of a backbone: its name, or a folder of a grid detector."""
    return detector if backbone is None else WithImageFeature(detector, _backbone(backbone, "--image-feature"))


def keep_detector(
    name: str,
    out: Path,
    weights: Path | None,
    backbone: str | None,
    settings: Sequence[str],
    class_names: Path | None,
) -> list[str]:
    """Write the detector folder `out` of an official file, or of what `open_detector` finds under this name.

    Hands back a line for each key or for what was guessed, and one for what it is.
    """
    if not name.startswith((GRID, HF, ONNX)) and not name.endswith(".onnx"):
        _only((), {"--weights": weights, "--backbone": backbone}, "an official file")
        path = fetched(name) if name.startswith(HUB) else Path(name)
        if not name.startswith(HUB) or path.is_file():
            return import_detector(path, out, settings, class_names)
        _only((), {"--set": settings or None, "--class-names": class_names}, f"{name}, a detector folder")
        name = str(path)
    refuse_existing(out)
    notes: list[str] = []
    name = f"{ONNX}{name}" if name.endswith(".onnx") and not name.startswith(ONNX) else name
    detector = open_detector(
        name,
        (),
        weights=weights,
        settings=settings,
        backbone=backbone,
        class_names=names_of(class_names),
        tell=notes.append,
    )
    save_whole(detector, out)
    return [*notes, line_of(detector.contract)]


def _onnx(
    name: str,
    values: dict[str, Any],
    backbone: str | None,
    selection: Selection | None,
    class_names: Sequence[str],
    tell: Callable[[str], object],
) -> Detector:
    """A grid where the file has a map and nothing says that it finds boxes."""
    path = Path(name.removeprefix(ONNX))
    if backbone is None and selection is None and "boxes" not in values and is_backbone(path, values):
        if class_names:
            raise RecipeError(f"{path} gives a map of features and no classes; leave out --class-names")
        cells = values.pop("cells", None)
        grid, found = of_onnx.read(path, values)
        for note in found:
            tell(note)
        return Grid(grid, cells)
    proposer, found = OnnxProposer.read(path, values, class_names)
    for note in found:
        tell(note)
    return PooledDetector(proposer, _maybe(backbone), selection or EXACTLY_100)


def _maybe(backbone: str | None) -> Backbone | None:
    return None if backbone is None else _backbone(backbone, "--backbone")


def _backbone(name: str, option: str) -> Backbone:
    if name.startswith(ONNX):
        return of_onnx.read(Path(name.removeprefix(ONNX)), {})[0]
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
