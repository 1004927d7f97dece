"""A detector as a user asks for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.vision.detectors.selection import Selection


@dataclass(frozen=True)
class DetectorRequest:
    """A name or a file, with the options that its kind takes."""

    name: str
    records: Sequence[Record] = ()
    features: Path | None = None  # files of features that were made elsewhere
    whole_boxes: bool = False  # those have no boxes: each is the whole picture
    weights: Path | None = None  # where they are not to be downloaded
    selection: Selection | None = None  # None: as the kind has it
    settings: Mapping[str, Any] = field(default_factory=dict)
    backbone: str | None = None  # whose features the boxes get
    class_names: Sequence[str] = ()
    report: Callable[[str], object] = lambda _: None  # receives a line for each setting that was inferred or assumed
