"""What a report holds: plain data, so that anything can be reported, and a page that draws it (html.py)."""

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
    """Arms on the same test pictures. `drawn` names the scores that get a bar; the others stand in the table."""

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
    from_zero: bool = False  # a score's axis must not make much of little


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
    wanted: str  # what most people said
    accuracy: float  # 0 to 1

    @property
    def right(self) -> bool:
        return self.accuracy >= 0.5


@dataclass(frozen=True)
class Word:
    """A piece of a caption; `absent` where it names a thing that is not in the picture."""

    text: str
    absent: bool = False


@dataclass(frozen=True)
class ShownPicture:
    """One picture of the gallery with what was said of it."""

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
    """Something that failed, counted, and as far as can be told why."""

    title: str
    text: str
    rows: tuple[ReportRow, ...] = ()


@dataclass(frozen=True)
class TimedStage:
    name: str
    seconds: float
    memory_mib: float | None = None  # the most that all processes held at one time


@dataclass(frozen=True)
class Report:
    title: str
    lead: str  # two sentences: what was done and what came out
    configuration: Mapping[str, str] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    charts: tuple[Chart, ...] = ()
    gallery: tuple[ShownPicture, ...] = ()
    gallery_text: str = ""  # who speaks, and how the pictures were chosen
    findings: tuple[ReportFinding, ...] = ()
    worst: tuple[ShownPicture, ...] = ()  # the lowest-scoring captions
    stages: tuple[TimedStage, ...] = ()
    footer: str = ""  # command, version, machine
