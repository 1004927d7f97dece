"""The name and options by which a user chooses a detector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.vision.detectors.selection import Selection


@dataclass(frozen=True)
class DetectorRequest:
    """The name or file of a detector, and the command-line options that were given with it."""

    name: str
    records: Sequence[Record] = ()
    features: Path | None = None  # --features: folder or file of precomputed features
    whole_boxes: bool = False  # --boxes whole: the given features have no boxes
    weights: Path | None = None  # --weights: a file to use instead of a download
    selection: Selection | None = None  # None: the detector's default rule
    settings: Mapping[str, Any] = field(default_factory=dict)
    backbone: str | None = None  # --backbone: computes the features of the boxes
    class_names: Sequence[str] = ()
    report: Callable[[str], object] = lambda _: None  # called with a line for each inferred or assumed setting
