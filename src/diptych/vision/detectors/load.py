"""The table of all kinds of detectors.

Each entry has the class that opens a detector's folder. It also has the names and files by which users choose the
detector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from diptych.runtime.devices import torch_unchanged
from diptych.runtime.errors import CheckpointError, RecipeError, explained, nearest
from diptych.runtime.plugins import unknown_name
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.official.regions import with_settings
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import Selection, with_counts
from diptych.vision.detectors.weights import DETECTOR, read_detector

REGIONS = "regions"  # a `with-whole` detector stores its inner detector in this subfolder
Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class DetectorKind:
    """A kind of detector.

    Its class has a method `from_folder(folder, described)`, which opens what the method `save` wrote.

    `names`: the values of `diptych extract --detector`, such as `grid:BACKBONE`, each with the options that it accepts.
    `files`: the same for the files of `diptych import detector`. A class with `names` or `files` also has a method
    `from_request(request)`.
    """

    place: str  # MODULE:CLASS of the detector's class
    names: Names = field(default_factory=dict)
    files: Names = field(default_factory=dict)
    draws: str = ""  # name of the drawn world whose images it detects in; "": photographs

    def load(self) -> Any:
        """Import the class of this kind, and return it."""
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)


_IN = "diptych.vision.detectors"
_ONNX = ("--set", "--backbone", "--class-names", "--region-selection")
DETECTORS: dict[str, DetectorKind] = {  # keys: the values of `kind` in detector.json
    "ground-truth": DetectorKind(f"{_IN}.ground_truth:GroundTruth", {"ground-truth": ()}),
    "given": DetectorKind(f"{_IN}.given:GivenRegions", {"given": ("--features", "--boxes")}),
    "storybook-detector": DetectorKind("diptych_world.detector.detector:StorybookDetector", draws="storybook"),
    "faster-rcnn": DetectorKind(
        f"{_IN}.faster_rcnn:FasterRCNN", {"fasterrcnn_*": ("--weights", "--region-selection", "--set")}
    ),
    "grid": DetectorKind(f"{_IN}.grid:Grid", {"grid:*": ("--weights", "--set")}),
    "official": DetectorKind(
        f"{_IN}.official.detector:OfficialDetector", files={"*": ("--set", "--class-names")}
    ),
    "pooled": DetectorKind(
        f"{_IN}.pooled:PooledDetector",
        {
            "hf:*": ("--weights", "--backbone", "--region-selection", "--set"),
            "onnx:*": _ONNX,
            "tfjs:*": ("--backbone", "--region-selection", "--set"),
        },
        files={"*.onnx": _ONNX},
    ),
    "with-whole": DetectorKind(f"{_IN}.image_feature:WithImageFeature"),
}  # fmt: skip


def is_drawn(extractor: str) -> bool:
    """Return True if a contract's extractor detects only in images of a drawn world."""
    return extractor in DETECTORS and bool(DETECTORS[extractor].draws)


def open_requested(request: DetectorRequest, given: Mapping[str, object], files: bool = False) -> Detector:
    """Open the detector `request.name`. If `files` is True, the name may also be the path of a file.

    `given`: all command-line options by name; the value None means that the option is not given.

    Raises RecipeError for an unknown name, and for an option that this kind of detector does not accept.
    """
    known = [
        (pattern, kind, options)
        for kind in DETECTORS.values()
        for pattern, options in {**kind.names, **(kind.files if files else {})}.items()
    ]
    matches = [one for one in known if fnmatchcase(request.name, one[0])]
    if not matches:
        names = ", ".join(pattern.replace("*", "NAME") for pattern, _, _ in known)
        raise unknown_name(
            f"no detector {request.name!r}; expected a folder with {DETECTOR} (of a detector, a store or a model), "
            f"hub:NAME@COMMIT, or one of {names}"
        )
    _, kind, options = max(matches, key=lambda one: len(one[0]))
    refuse_ignored(given, options, f"{'import ' if files else '--'}detector {request.name}")
    return cast(Detector, kind.load().from_request(request))


def refuse_ignored(given: Mapping[str, object], taken: Sequence[str], what: str) -> None:
    """Raise RecipeError if `given` has an option that is not in `taken`, because it would be ignored.

    `what`: the detector, for the error.
    """
    for name, value in given.items():
        if value is not None and name not in taken:
            raise RecipeError(f"{name} does not apply to {what}; leave it out")


@torch_unchanged()
def load_detector(folder: Path, selection: Selection | Mapping[str, Any] | int | None = None) -> Detector:
    """Open a folder that `Detector.save` wrote. The folder is self-contained and may be moved.

    `selection` replaces the saved selection rule, also in the contract. A number sets only the number of regions. A
    mapping changes the settings that it names. Raises CheckpointError for a damaged folder, and RecipeError if the
    detector has no selection rule.
    """
    described = read_detector(folder)
    kind = DETECTORS.get(str(described["kind"]))
    if kind is None:
        known = nearest(str(described["kind"]), DETECTORS)
        raise unknown_name(f"{folder / DETECTOR} has an unknown `kind` of detector; {known}", CheckpointError)
    with explained(CheckpointError, f"{folder / DETECTOR} is damaged", "copy the folder again"):
        detector = cast(Detector, kind.load().from_folder(folder, described))
    if selection is not None:
        finder: Any = getattr(detector, "regions", detector)  # the inner detector of a `with-whole` detector
        own = getattr(finder, "selection", None)
        if isinstance(selection, int) and own is not None:
            finder.selection = replace(own, most=selection, least=selection)
        elif isinstance(selection, Mapping) and isinstance(own, Selection):
            finder.selection = own.changed(selection)[0]
        elif isinstance(selection, Mapping) and own is not None:
            counts = with_counts(asdict(own), selection)
            finder.selection = with_settings(own, {**selection, "least": counts["least"], "most": counts["most"]})
        elif isinstance(selection, Selection) and isinstance(own, Selection):
            finder.selection = selection
        else:
            why = "does not accept a selection rule; leave out the selection (for a grid, use --set cells=N)"
            raise RecipeError(f"{finder.contract.extractor} {why}")
    return detector
