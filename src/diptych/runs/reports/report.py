"""The contents of a report as plain data, from which html.py makes the page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from diptych.tasks.scores import ItemScore, Scores

Fractions = tuple[float, float, float, float]  # (x1, y1, x2, y2) of a box, from 0 to 1


@dataclass(frozen=True)
class Arm:
    """One configuration of a comparison, with its scores."""

    name: str  # name of the arm, such as "from scratch"
    scores: Scores
    note: str = ""  # how the arm was trained, such as its learning rate and steps


@dataclass(frozen=True)
class Comparison:
    """Scores of several arms on the same test images.

    The scores named in `drawn` are shown as bars; the table has all scores.
    """

    title: str
    arms: tuple[Arm, ...]
    drawn: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Chart:
    title: str
    curves: tuple[Curve, ...]
    x: str = "step"
    y: str = ""
    from_zero: bool = False  # True: the y axis starts at 0, so that small differences look small
    about: str = ""  # explanation, below the chart
    log: bool = False  # True: logarithmic y axis, if all values are above 0


@dataclass(frozen=True)
class Box:
    """A region with the class name that the detector predicted."""

    name: str
    box: Fractions
    score: float


@dataclass(frozen=True)
class Word:
    """A word of a caption. `absent` is True if it names an object that is not in the image."""

    text: str
    absent: bool = False


@dataclass(frozen=True)
class ShownPicture:
    """An image of the report's gallery with its predictions."""

    key: str
    picture: Path | None
    size: tuple[int, int]
    boxes: tuple[Box, ...] = ()
    caption: tuple[Word, ...] = ()
    cider: float | None = None  # CIDEr of the caption, times 100
    references: tuple[str, ...] = ()
    answers: tuple[ItemScore, ...] = ()  # all items but the caption
    hits: Mapping[str, Path | None] = field(default_factory=dict)  # {key: path} of the retrieved images
    worth: float = 0.0  # mean score of the items, by which images are sorted

    @property
    def written(self) -> str:
        return "".join(word.text for word in self.caption)


@dataclass(frozen=True)
class ReportRow:
    """A row of a finding. `share` (0 to 1) is drawn as a bar."""

    label: str
    value: str
    share: float | None = None


@dataclass(frozen=True)
class ReportFinding:
    """A table of failures with an explanation, such as "Captions written more than once"."""

    title: str
    text: str
    rows: tuple[ReportRow, ...] = ()


@dataclass(frozen=True)
class TimedStage:
    name: str
    seconds: float
    memory_mib: float | None = None  # peak memory in MiB, summed over all processes


@dataclass(frozen=True)
class Headline:
    """A main result in large type, such as "+72 CIDEr" with the caption "from pre-training"."""

    figure: str
    text: str


@dataclass(frozen=True)
class Report:
    title: str
    lead: str  # a sentence on the method and one on the result
    configuration: Mapping[str, str] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    charts: tuple[Chart, ...] = ()
    gallery: tuple[ShownPicture, ...] = ()
    gallery_text: str = ""  # introduction of the gallery: which arm predicted, how images were chosen
    findings: tuple[ReportFinding, ...] = ()
    stages: tuple[TimedStage, ...] = ()
    headlines: tuple[Headline, ...] = ()  # the main results
