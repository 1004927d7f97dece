"""Detectors by kind: how the folder of one is opened, and under which names a user asks for one that is no folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

from diptych.runtime.errors import CheckpointError, RecipeError, nearest
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.weights import DETECTOR, read_detector

REGIONS = "regions"  # the subfolder of a detector that another one wraps
Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class DetectorKind:
    """A kind of detector: a class with `from_folder(folder, described)`, which reads what its `save` wrote.

    `names`: patterns of names that `diptych extract --detector` takes, each with the options that it takes; `files`:
    the same for files that `diptych import detector` takes. A class with either has `from_request(request)` too.
    """

    place: str  # MODULE:CLASS
    names: Names = field(default_factory=dict)
    files: Names = field(default_factory=dict)

    def load(self) -> Any:
        """The class. Its module is imported when a detector of this kind is opened."""
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)


_IN = "diptych.vision.detectors"
_ONNX = ("--set", "--backbone", "--class-names", "--region-selection")
DETECTORS: dict[str, DetectorKind] = {  # by the `kind` of detector.json
    "ground-truth": DetectorKind(f"{_IN}.ground_truth:GroundTruth", {"ground-truth": ()}),
    "given": DetectorKind(f"{_IN}.given:GivenRegions", {"given": ("--features", "--boxes")}),
    "storybook-detector": DetectorKind("diptych.storybook.detector.detector:StorybookDetector"),
    "faster-rcnn": DetectorKind(
        f"{_IN}.faster_rcnn:FasterRCNN", {"fasterrcnn_*": ("--weights", "--region-selection")}
    ),
    "grid": DetectorKind(f"{_IN}.grid:Grid", {"grid:*": ("--weights", "--set")}),
    "official": DetectorKind(
        f"{_IN}.official.detector:OfficialDetector", files={"*": ("--set", "--class-names")}
    ),
    "pooled": DetectorKind(
        f"{_IN}.pooled:PooledDetector",
        {"hf:*": ("--weights", "--backbone", "--region-selection"), "onnx:*": _ONNX},
        files={"*.onnx": _ONNX},
    ),
    "with-whole": DetectorKind(f"{_IN}.image_feature:WithImageFeature"),
}  # fmt: skip


def ask(request: DetectorRequest, given: Mapping[str, object], files: bool = False) -> Detector:
    """The detector of a name, or (`files`) of a file; `given`: the options by their names, None where not given.

    Raises RecipeError for a name of no kind, and for an option that its kind does not take.
    """
    known = [
        (pattern, kind, options)
        for kind in DETECTORS.values()
        for pattern, options in {**kind.names, **(kind.files if files else {})}.items()
    ]
    fitting = [one for one in known if fnmatchcase(request.name, one[0])]
    if not fitting:
        names = ", ".join(pattern.replace("*", "NAME") for pattern, _, _ in known)
        raise RecipeError(
            f"no detector {request.name!r}; wanted a folder with {DETECTOR} (of a detector, a store or a model), "
            f"hub:NAME@COMMIT, or one of {names}"
        )
    _, kind, options = max(fitting, key=lambda one: len(one[0]))
    refuse_ignored(given, options, f"{'import ' if files else '--'}detector {request.name}")
    detector: Detector = kind.load().from_request(request)
    return detector


def refuse_ignored(given: Mapping[str, object], taken: Sequence[str], what: str) -> None:
    """Raises RecipeError for an option that would be ignored."""
    for name, value in given.items():
        if value is not None and name not in taken:
            raise RecipeError(f"{name} is not for {what}; leave it out")


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
    kind = DETECTORS.get(str(described["kind"]))
    if kind is None:
        known = nearest(str(described["kind"]), DETECTORS)
        raise CheckpointError(f"{folder / DETECTOR} is of an unknown kind; {known}")
    try:
        detector: Detector = kind.load().from_folder(folder, described)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / DETECTOR} is damaged ({error!r}); copy the folder again") from error
    return detector
