"""Open a detector from the name and the options that a user gives on the command line."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from diptych.core import Record
from diptych.core.contract import GIVEN
from diptych.core.folders import DETECTOR, INNER, packaged
from diptych.runtime.configs import assignment, value_of
from diptych.runtime.errors import CheckpointError, DataError, RecipeError, explained
from diptych.runtime.files import text_of
from diptych.runtime.outputs import refuse_folder, whole_folder
from diptych.runtime.weight_files import HUB_FILES, from_hub
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.grid import backbone_of
from diptych.vision.detectors.image_feature import WithImageFeature
from diptych.vision.detectors.load import load_detector, open_requested, refuse_ignored
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.sheet import detection_sheet
from diptych.vision.detectors.weights import DETECTOR as DESCRIBED
from diptych.vision.detectors.weights import WEIGHTS
from diptych.vision.image_files import find_pictures
from diptych.vision.pictures import open_picture

HUB = "hub:"
# File name of the sheet with regions drawn on images, number of its images, number of regions per image.
DRAWN, SHOWN, FIRST = "regions.png", 12, 15
HUB_NAME = re.compile(r"hub:([\w.-]+/[\w.-]+)@([0-9a-f]{40})")


def open_detector(
    name: str, records: Sequence[Record] = (), features: Path | None = None, weights: Path | None = None,
    select: Selection | int | None = None, boxes: str | None = None, settings: Sequence[str] = (),
    backbone: str | None = None, class_names: Path | None = None, report: Callable[[str], object] = lambda _: None,
    files: bool = False,
) -> Detector:  # fmt: skip
    """Open the detector `name`.

    `name` is a folder (of a detector, store, model or run), `hub:NAME@COMMIT`, or a name in the table `DETECTORS` such
    as `grid:BACKBONE`. With `files`, it may also be a weights file. The other arguments are the command-line options
    `--weights`, `--boxes` and so on. `select`: a selection rule, or an exact number of regions; None: the detector's
    default. `report` is called with a line for each setting that was inferred or assumed. Raises RecipeError for an
    unknown name, and for an option that the detector does not take.
    """
    _check_features(name, features, boxes)
    given = {"--features": features, "--weights": weights, "--region-selection": select, "--boxes": boxes,
             "--set": tuple(settings) or None, "--backbone": backbone, "--class-names": class_names}  # fmt: skip
    path = fetched(name) if name.startswith(HUB) else packaged(Path(name))
    rule = Selection(most=select, least=select) if isinstance(select, int) else select
    values = {key: value_of(value) for key, value in (assignment(text, "cells=14") for text in settings)}
    for inside in (path, path / DETECTOR, path / INNER / DETECTOR):
        if (inside / DESCRIBED).is_file() and name != GIVEN:
            chooses = values.keys() <= asdict(Selection()).keys() and not select
            taken = ("--region-selection", "--set") if chooses else ("--region-selection",)
            refuse_ignored(given, taken, f"{name}, a detector folder, which has its own")
            return load_detector(inside, values or select)
    request = DetectorRequest(
        str(path) if name.startswith(HUB) else name, records, features, boxes is not None, weights, rule, values,
        backbone, _names_of(class_names), report,
    )  # fmt: skip
    return open_requested(request, given, files or name.startswith(HUB))


def _check_features(name: str, features: Path | None, boxes: str | None) -> None:
    if (name == GIVEN) != (features is not None):
        raise RecipeError("--detector given and --features PATH belong together: pass both, or neither")
    if boxes not in (None, "whole") or (boxes is not None and features is None):
        raise RecipeError(f"--boxes {boxes}: expected --boxes whole, for features without boxes (--features PATH)")


def with_image_feature(detector: Detector, backbone: str | None) -> Detector:
    """Add a feature of the whole image, computed by `backbone`: a name, or the folder of a grid detector.

    None: return `detector` unchanged.
    """
    return detector if backbone is None else WithImageFeature(detector, backbone_of(backbone, "--image-feature"))


def keep_detector(
    name: str, out: Path, weights: Path | None = None, backbone: str | None = None, settings: Sequence[str] = (),
    class_names: Path | None = None, images: Path | None = None,
) -> list[str]:  # fmt: skip
    """Write the detector `name` (a name or a weights file) to the folder `out`.

    `images`: a folder of photographs on which to draw regions.

    Return lines to print: one for each key and each note of the import, and one that describes the detector.
    """
    refuse_folder(out, None)
    lines: list[str] = []
    detector = open_detector(
        name, (), None, weights, settings=settings, backbone=backbone, class_names=class_names, report=lines.append,
        files=True,
    )  # fmt: skip
    problem, remedy = f"cannot write the detector to {out}", "choose another folder"
    with explained(CheckpointError, problem, remedy), whole_folder(out, "detector") as temporary:
        detector.save(temporary)
        if images is not None:
            _draw(detector, images, temporary / DRAWN)
    contract = detector.contract
    classes = f"{len(contract.class_names)} classes" if contract.class_names else "no classes"
    about = f"{contract.extractor}: {contract.selection}; {contract.feature_size} values a region, {classes}"
    return [*lines, about]


def _draw(detector: Detector, photographs: Path, path: Path) -> None:
    """Draw the first FIRST regions of SHOWN images in the folder `photographs`, as one PNG.

    Raises DataError if no image can be read.
    """
    files, pictures = [photographs] if photographs.is_file() else find_pictures(photographs), []
    for file in files[:: -(-len(files) // SHOWN) or 1]:
        with suppress(DataError):
            pictures.append(open_picture(file))
    if not pictures:
        raise DataError(f"found no image to draw regions on in {photographs}; pass a folder of photographs")
    regions = detector.detect(pictures, [Record(str(number)) for number in range(len(pictures))])
    detection_sheet(pictures, [one.first(FIRST) for one in regions], detector.contract.class_names, path)


def fetched(name: str) -> Path:
    """Download `hub:USER/NAME@COMMIT`. Return the path of the downloaded detector folder or weights file."""
    if (match := HUB_NAME.fullmatch(name)) is None:
        raise RecipeError(
            f"{name!r} has no fixed version; expected hub:USER/NAME@COMMIT with the 40 digits of the commit (on the "
            "hub: Files, History), because the detector and its features change if a branch changes"
        )
    use = (
        f"pass the folder of {DESCRIBED} and {WEIGHTS}, or the file of weights: diptych import detector FILE --out OUT"
    )
    if (described := from_hub(match[1], DESCRIBED, match[2], use)) is not None:
        from_hub(match[1], WEIGHTS, match[2], use)
        return described.parent
    for file in HUB_FILES:
        if (path := from_hub(match[1], file, match[2], use)) is not None:
            return path
    raise CheckpointError(f"{name} has neither {DESCRIBED} nor {' nor '.join(HUB_FILES)}; pass a detector's repository")


def _names_of(path: Path | None) -> list[str]:
    """Read class names from a file, one per line.

    As in Visual Genome's list, the background has no line. If `path` is None, return no names.
    """
    if path is None:
        return []
    with explained(RecipeError, f"cannot read the names in {path}", "expected one class name per line"):
        names = [line.strip() for line in text_of(path).splitlines() if line.strip()]
    return names[1:] if names and names[0].strip("_").lower() == "background" else names
