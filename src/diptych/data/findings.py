"""Findings of `diptych check`: their kinds, what to do about each, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from diptych.core.shares import FEWEST
from diptych.data.leakage import Leakage
from diptych.runtime.errors import counted

Severity = Literal["error", "warning"]
NO_TEXT = "no text here"
TURNED = "images with boxes that EXIF turns or mirrors"
EXAMPLES = 5

# {kind of finding: (its severity, what the user can do)}.
KINDS: dict[str, tuple[Severity, str]] = {
    "no records": ("error", "the data set is empty"),
    "key twice": ("error", "keys identify images and must be unique"),
    "record damaged": ("error", "its bytes changed after extraction: extract again"),
    "detector": ("error", "a model trained on these features could not read image files: extract again"),
    "no detector": ("warning", "a model trained on this store could not read image files: repeat the extract command"),
    "contract": ("error", "the model was trained on other features: extract with the model's detector"),
    "features not finite": ("error", "NaN or infinite numbers: extract again, or leave the records out"),
    "features of another size": ("error", "the store's feature contract has other sizes: extract to a new folder"),
    "features all zero": ("error", "they carry no information: make the features again, or leave the records out"),
    "features constant": ("error", "every value is the same number: make the features again"),
    "features repeated": ("warning", "different images have equal features: check which image they belong to"),
    "box not finite": ("error", "NaN or infinite numbers: extract again, or leave the records out"),
    "box upside down": ("error", "expected x1 <= x2 and y1 <= y2; are these widths and heights instead of corners?"),
    "box outside": ("warning", "boxes are fractions of the image, from 0 to 1"),
    "true box wrong": ("warning", "the box of an object or an expression is upside down or outside the image"),
    "score outside": ("warning", "a detector's confidence is from 0 to 1"),
    "no regions": ("warning", "the detector found nothing; lower its score threshold"),
    "picture missing": ("error", "no such file: check the folder that relative names start from"),
    "boxes misplaced": ("error", "extraction leaves the image out: correct size and boxes, or pass --stored-boxes"),
    TURNED: ("warning", "right if the boxes are of the upright image; if of the stored pixels: extract --stored-boxes"),
    "no train split": ("warning", "training reads the split train, unless data.split names another"),
    "picture unreadable": ("error", "extraction would leave it out: replace the file, or make it readable"),
    "not extracted": ("warning", "the reasons are in failures.jsonl; the same extract command tries again"),
    "caption empty": ("warning", "nothing can be learnt from a caption without a word"),
    NO_TEXT: ("warning", "no image has captions, questions or other words: images can be captioned and searched"),
    "no words": ("warning", "the image has no text, so no task uses it"),
    "letters not in training": ("warning", "a vocabulary trained on the training texts encodes them as [UNK]"),
    "text not in English": ("warning", "data.mirror never mirrors the image: only English words for sides are swapped"),
    "tag of nothing": ("warning", "a text has a tag [k], but the image has no object k: the tag is read as plain text"),
    "tag without a region": ("warning", "no region overlaps the tagged object: the tag is read without a region"),
    "expression without a region": ("warning", "no region has IoU 0.5 with its box: not trained on, scored as wrong"),
    "question without answers": ("warning", "the answer can be predicted, but neither trained on nor scored"),
    "text with two labels": ("warning", "at most one of the labels can be right: keep that one"),
    "labels alike": ("warning", "they differ only in case, Unicode form or full stops, but are separate classes"),
    "split too small": ("warning", f"scores on fewer than {FEWEST} images are unreliable: add some"),
    "same picture twice": ("warning", "equal files under several keys of one split"),
    # The next finding is an error, not a warning, if one of the two splits is a val or test split.
    "picture in two splits": ("warning", "scores on the later split are too high: remove it from one"),
    "near copy in two splits": ("warning", "hashes differ in at most 4 of 64 bits: compare the images, remove one"),
    "trained on": ("error", "scores on these images are too high: remove them, or score them separately"),
    "key in two splits": ("warning", "scores on the later split are too high: remove it from one"),
}


@dataclass
class CheckFinding:
    """A kind of problem, with the number of cases and the first EXAMPLES cases."""

    kind: str
    severity: Severity
    count: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def way_out(self) -> str:
        return KINDS[self.kind][1]

    def lines(self) -> Iterator[Text | Padding]:
        """Yield a line with the kind and the count. Then yield, indented, what to do and the examples."""
        colour = "red" if self.severity == "error" else "yellow"
        yield Text.assemble((self.severity, colour), f": {self.kind}, {self.count:,}")
        for line in (self.way_out, *(f"- {example}" for example in self.examples)):
            yield Padding(Text(line), (0, 0, 0, 4), expand=False)


@dataclass
class CheckReport:
    """The result of a check. `ok` is True if there are no errors, `clean` if there are no findings at all."""

    records: int = 0
    capitals: int = 0  # number of texts with capital letters
    splits: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, float] = field(default_factory=dict)  # {field: percent of records that have it}
    findings: list[CheckFinding] = field(default_factory=list)
    tasks: dict[str, dict[str, int]] = field(default_factory=dict)  # {task: {split: number of records for the task}}
    trained_on: Leakage | None = None  # counts of the val and test images that the model was trained on

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def clean(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        findings = [asdict(finding) | {"way_out": finding.way_out} for finding in self.findings]
        seen = None if self.trained_on is None else self.trained_on.to_json()
        return {"ok": self.ok} | asdict(self) | {"findings": findings, "trained_on": seen}

    def __rich__(self) -> Group:
        splits = _listed(self.splits)
        covered = ", ".join(f"{name} {percent:.1f}%" for name, percent in self.coverage.items() if percent)
        lines = [line for finding in self.findings for line in finding.lines()]
        verdict = "Nothing wrong was found." if self.clean else "Training would run."
        if not self.ok:
            verdict = "Training would fail or miss data, or its scores would be meaningless: see the errors."
        elif any(finding.kind == NO_TEXT for finding in self.findings):
            verdict = "There is nothing to train on."
        uses = [f"for {name}: {_listed(counts)} records" for name, counts in self.tasks.items() if counts]
        if none := ", ".join(name for name, counts in self.tasks.items() if not counts):
            uses.append(f"no records for {none}")
        if self.capitals:
            kept = "data.lowercase=false keeps them"
            uses.append(f"{self.capitals:,} texts have capital letters, which training converts to lower case: {kept}")
        uses += [f"val and test: {self.trained_on.text}"] if self.trained_on is not None else []
        return Group(
            Text(f"{counted(self.records, 'records')} ({splits})"),
            Text(covered),
            *map(Text, uses),
            *lines,
            Text(verdict),
        )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
