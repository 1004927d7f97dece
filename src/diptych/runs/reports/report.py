"""The contents of a report as plain data; html.py draws the page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from diptych.tasks.scores import Scores

Fractions = tuple[float, float, float, float]  # corners of a box


@dataclass(frozen=True)
class Arm:
    """One system of a comparison."""

    name: str  # "from scratch"
    scores: Scores
    note: str = ""  # how it was trained: its learning rate and how that was chosen, its steps


@dataclass(frozen=True)
class Comparison:
    """Arms on the same test images. Scores in `drawn` get a bar; all are in the table."""

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
    from_zero: bool = False  # y axis from 0, so that small differences of scores look small
    log: bool = False  # logarithmic y axis, unless a value is 0 or less


@dataclass(frozen=True)
class Box:
    """A region as the detector named it."""

    name: str
    box: Fractions
    score: float


@dataclass(frozen=True)
class Answered:
    question: str
    kind: str
    given: str
    wanted: str  # the most frequent answer of people
    accuracy: float  # 0 to 1

    @property
    def right(self) -> bool:
        return self.accuracy >= 0.5


@dataclass(frozen=True)
class Word:
    """A piece of a caption; `absent` if it names an object that is not in the image."""

    text: str
    absent: bool = False


@dataclass(frozen=True)
class ShownPicture:
    """One image of the gallery with its predictions."""

    key: str
    picture: Path | None
    size: tuple[int, int]
    boxes: tuple[Box, ...] = ()
    caption: tuple[Word, ...] = ()
    cider: float | None = None  # times 100
    references: tuple[str, ...] = ()
    answers: tuple[Answered, ...] = ()

    @property
    def written(self) -> str:
        return "".join(word.text for word in self.caption)


@dataclass(frozen=True)
class ReportRow:
    """One line of a finding; `share` from 0 to 1 draws a bar."""

    label: str
    value: str
    share: float | None = None


@dataclass(frozen=True)
class ReportFinding:
    """A count of failures, with the cause if known."""

    title: str
    text: str
    rows: tuple[ReportRow, ...] = ()


@dataclass(frozen=True)
class TimedStage:
    name: str
    seconds: float
    memory_mib: float | None = None  # peak memory of all processes together


@dataclass(frozen=True)
class Headline:
    """A main result in a few words: "+72 CIDEr", "from pre-training"."""

    figure: str
    text: str


@dataclass(frozen=True)
class Report:
    title: str
    lead: str  # two sentences: method and result
    configuration: Mapping[str, str] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    charts: tuple[Chart, ...] = ()
    gallery: tuple[ShownPicture, ...] = ()
    gallery_text: str = ""  # source of the predictions, and how the images were chosen
    findings: tuple[ReportFinding, ...] = ()
    worst: tuple[ShownPicture, ...] = ()  # the lowest-scoring captions
    stages: tuple[TimedStage, ...] = ()
    headlines: tuple[Headline, ...] = ()  # the main results, in large figures
