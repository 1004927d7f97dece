"""A user's request for a detector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.vision.detectors.selection import Selection


@dataclass(frozen=True)
class DetectorRequest:
    """A name or a file, with the options of its kind."""

    name: str
    records: Sequence[Record] = ()
    features: Path | None = None  # files of given features
    whole_boxes: bool = False  # the given features have no boxes: each is the whole image
    weights: Path | None = None  # a file, instead of a download
    selection: Selection | None = None  # None: the kind's default
    settings: Mapping[str, Any] = field(default_factory=dict)
    backbone: str | None = None  # backbone that computes the features of the boxes
    class_names: Sequence[str] = ()
    report: Callable[[str], object] = lambda _: None  # receives a line for each setting that was inferred or assumed
