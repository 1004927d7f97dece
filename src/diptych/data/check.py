"""Look over a data set before hours are spent on it: `diptych check DATA`.

An error is what training would fail on, or read as nonsense without a word, and what makes the scores of a test wrong;
a warning is what a person should know.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Group
from rich.padding import Padding
from rich.text import Text
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.data.store.store import FAILURES, Store
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import parse_json, text_of
from diptych.runtime.terminal import printable
from diptych.vision.archives import read_bytes
from diptych.vision.detectors.ground_truth import KIND as TRUTH
from diptych.vision.features.profile import differences
from diptych.vision.pictures import open_picture

Severity = Literal["error", "warning"]
EXAMPLES = 5
NO_TEXT = "no text here"
SCORED = ("val", "dev", "test")  # how the names of splits begin that are not trained on
HALF, SHOWN = 0.5, 0.3  # IoU from which on a region is what an expression means, and shows what a text names
SLACK = 1e-3  # of a picture's side: half precision and rounding may put a box end so far outside

# What is looked for, how bad it is, and the way out.
KINDS: dict[str, tuple[Severity, str]] = {
    "no records": ("error", "the data set is empty"),
    "key twice": ("error", "keys name pictures and must be unique"),
    "record damaged": ("error", "its bytes are not what was written: extract again"),
    "detector": ("error", "a model trained on these features could not caption a picture: extract again"),
    "no detector": ("warning", "a model trained so reads features alone: give the same extract command again"),
    "contract": ("error", "the model was trained on other features: extract with its own detector"),
    "features not finite": ("error", "NaN or infinite numbers: extract again, or leave the records out"),
    "features of another size": ("error", "not as the store's contract says: extract to a new folder"),
    "features all zero": ("error", "nothing is seen in such: make the features anew, or leave the records out"),
    "features constant": ("error", "every value is the same number, which tells nothing: make the features anew"),
    "features repeated": ("warning", "pictures that differ have equal features: see whose they are"),
    "box not finite": ("error", "NaN or infinite numbers: extract again, or leave the records out"),
    "box upside down": ("error", "right of x1 must come x2, below y1 y2: corners, not width and height?"),
    "box outside": ("warning", "boxes are fractions of the picture, from 0 to 1"),
    "true box wrong": ("warning", "the box of a thing or an expression is upside down or outside the picture"),
    "score outside": ("warning", "a detector's confidence is from 0 to 1"),
    "no regions": ("warning", "the detector saw nothing; lower its score threshold"),
    "picture missing": ("error", "no such file: check the folder that relative names start from"),
    "picture unreadable": ("error", "extraction would leave it out: replace the file"),
    "not extracted": ("warning", "the reasons are in failures.jsonl; the same extract command tries again"),
    "caption empty": ("warning", "a caption without a word teaches nothing"),
    NO_TEXT: ("warning", "no picture has captions, questions or other words: they can be captioned and searched"),
    "no words": ("warning", "nothing is said about the picture, so no task reads it"),
    "tag of nothing": ("warning", "a text names [k], and the picture has no such thing: it is read as it is"),
    "tag without a region": ("warning", "no region shows the thing that a text names: it is read without one"),
    "expression without a region": ("warning", "none overlaps the true box by half: left out, and scored as wrong"),
    "question without answers": ("warning", "it can be asked, but neither trained on nor scored"),
    "same picture twice": ("warning", "equal files under several keys of one split"),
    # An error where one of the two is a split that is scored or chosen by.
    "picture in two splits": ("warning", "scores on the later split are too good: take it out of one"),
    "key in two splits": ("warning", "scores on the later split are too good: take it out of one"),
}


@dataclass
class CheckFinding:
    kind: str
    severity: Severity
    count: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def way_out(self) -> str:
        return KINDS[self.kind][1]

    def lines(self) -> Iterator[Text | Padding]:
        """What it is and how often, below it the way out and examples: for windows of any width."""
        colour = "red" if self.severity == "error" else "yellow"
        yield Text.assemble((self.severity, colour), f": {self.kind}, {self.count:,}")
        for line in (self.way_out, *(f"- {example}" for example in self.examples)):
            yield Padding(Text(line), (0, 0, 0, 4), expand=False)


@dataclass
class CheckReport:
    """What was found. `ok` is False where there are errors, `clean` where there is anything to say at all."""

    records: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, float] = field(default_factory=dict)  # percent of the records that have it
    findings: list[CheckFinding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def clean(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "records": self.records,
            "splits": self.splits,
            "coverage": self.coverage,
            "findings": [asdict(finding) | {"way_out": finding.way_out} for finding in self.findings],
        }

    def __rich__(self) -> Group:
        splits = ", ".join(f"{name} {count:,}" for name, count in self.splits.items())
        covered = ", ".join(f"{name} {percent:.1f}%" for name, percent in self.coverage.items() if percent)
        lines = [line for finding in self.findings for line in finding.lines()]
        return Group(Text(f"{self.records:,} records ({splits})"), Text(covered), *lines, Text(self._verdict()))

    def _verdict(self) -> str:
        if self.clean:
            return "Nothing wrong was found."
        if not self.ok:
            return "Training would fail or lack something, or its scores would mean nothing: see the errors."
        return "Training would run." if self._has_words() else "There is nothing to train on."

    def _has_words(self) -> bool:
        return not any(finding.kind == NO_TEXT for finding in self.findings)


def check(data: Store | Iterable[Record], model: FeatureContract | None = None, pictures: bool = True) -> CheckReport:
    """Checks every record, and opens every picture where `pictures`; `model` is what a model wants of features.

    In a store that has its features a picture that cannot be opened is a warning: training does not need it.
    """
    found = _Check(data.contract if isinstance(data, Store) else None, pictures)
    for record in found.opened(_records(data, found)):
        found.inspect(record)
    if isinstance(data, Store):
        try:
            if data.detector() is None and data.contract.weights:
                found.add("no detector", str(data.folder))
        except CheckpointError as error:
            found.add("detector", str(error))
        for key, reason in _failures(data.folder):
            found.add("not extracted", f"{key}: {reason}")
        if model is not None:
            for line in differences(data.contract, model):
                found.add("contract", line)
    return found.report()


def _records(data: Store | Iterable[Record], found: _Check) -> Iterator[Record]:
    if not isinstance(data, Store):
        yield from data
        return
    for index in range(len(data)):
        try:
            yield data.record(index)
        except DataError as error:
            found.add("record damaged", str(error))


def _failures(folder: Path) -> Iterator[tuple[str, str]]:
    if (folder / FAILURES).is_file():
        for line in text_of(folder / FAILURES).splitlines():
            failure = parse_json(line)
            yield failure["key"], failure["reason"]


class _Check:
    """What is known so far."""

    def __init__(self, contract: FeatureContract | None, pictures: bool) -> None:
        self.contract, self.pictures = contract, pictures
        self.found: dict[str, CheckFinding] = {}
        self.records = 0
        self.splits: Counter[str] = Counter()
        self.covered: Counter[str] = Counter(captions=0, questions=0)
        self.keys: dict[str, str] = {}  # key -> its split
        self.seen: dict[bytes, str] = {}  # digest of features -> key of their first record
        self.files: dict[str, str] = {}  # key -> sha256 of the picture
        self.contents: dict[str, tuple[str, str]] = {}  # sha256 of a picture -> key and split of its first record
        self.unread: dict[str, str | None] = {}

    def add(self, kind: str, example: str, severity: Severity | None = None) -> None:
        finding = self.found.setdefault(kind, CheckFinding(kind, severity or KINDS[kind][0]))
        finding.count += 1
        if severity == "error":
            finding.severity = "error"
        if len(finding.examples) < EXAMPLES:
            finding.examples.append(printable(example))

    def opened(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records, each after its picture was opened; threads do that ahead of time."""
        if not self.pictures:
            yield from records
            return
        left = iter(records)
        with ThreadPoolExecutor(2) as pool:
            while batch := list(islice(left, 64)):
                for record, (content, trouble) in zip(batch, pool.map(_content, batch), strict=True):
                    self.covered["picture"] += content is not None and trouble is None
                    if trouble is not None:
                        kind = "picture unreadable" if content is not None else "picture missing"
                        severity: Severity = "error" if record.regions is None else "warning"
                        self.add(kind, f"{record.key}: {trouble}", severity)
                    elif content is not None:
                        self._same(record, content)
                    yield record

    def _same(self, record: Record, content: str) -> None:
        self.files[record.key] = content
        key, split = self.contents.setdefault(content, (record.key, record.split))
        if key == record.key and split == record.split:
            return
        if split == record.split:
            self.add("same picture twice", f"{record.key} is {key} ({split})")
        else:
            self.add(
                "picture in two splits", f"{record.key} ({record.split}) is {key} ({split})", _leak(split, record.split)
            )

    def inspect(self, record: Record) -> None:
        self.records += 1
        self.splits[record.split] += 1
        if (split := self.keys.setdefault(record.key, record.split)) != record.split:
            self.add("key in two splits", f"{record.key} ({split} and {record.split})", _leak(split, record.split))
            self.add("key twice", record.key)
        elif self.records > len(self.keys) + self._twice():
            self.add("key twice", record.key)
        self._words(record)
        if record.regions is not None:
            self.covered["regions"] += len(record.regions) > 0
            self._regions(record.key, record.regions)
            self._pointing(record, record.regions)
        for box in record.marked("box"):
            if not (0 - SLACK <= box[0] <= box[2] <= 1 + SLACK and 0 - SLACK <= box[1] <= box[3] <= 1 + SLACK):
                self.add("true box wrong", f"{record.key}: {tuple(box)}")

    def _twice(self) -> int:
        return self.found["key twice"].count if "key twice" in self.found else 0

    def _words(self, record: Record) -> None:
        words = record.words()
        self.covered.update({name: 1 for name, items in words.items() if items})
        for caption in record.captions:
            if not caption.strip():
                self.add("caption empty", record.key)
        for choices in record.choices:
            if nothing := [number for number in choices.named if number >= len(record.objects)]:
                self.add("tag of nothing", f"{choices.key}: [{nothing[0]}] of {len(record.objects)} objects")
        for question in record.questions:
            if not question.answers:
                self.add("question without answers", question.key)
        if not any(words.values()):
            self.add("no words", record.key)

    def _pointing(self, record: Record, regions: Regions) -> None:
        """Words that mean a place in the picture, and whether a region is there."""
        for expression in record.expressions:
            x1, y1, x2, y2 = expression.box
            if x1 < x2 and y1 < y2 and not (regions.overlaps(expression.box) >= HALF).any():
                self.add("expression without a region", expression.key)
        for choices in record.choices:
            for number in choices.named:
                if number < len(record.objects) and not (regions.overlaps(record.objects[number].box) >= SHOWN).any():
                    self.add("tag without a region", f"{choices.key}: [{number}]")

    def _regions(self, key: str, regions: Regions) -> None:
        if not len(regions):
            self.add("no regions", key)
        numbers = {name: t for name, t in regions.tensors().items() if name in ("features", "classes", "whole")}
        if bad := [name for name, tensor in numbers.items() if not torch.isfinite(tensor).all()]:
            self.add("features not finite", f"{key}: {', '.join(bad)}")
        if regions.features is not None and regions.features.numel():
            self._values(key, regions.features)
        found = {name: tensor.shape[-1] for name, tensor in numbers.items()}
        wanted = {name: width for name, width in self._widths().items() if found.get(name, width) != width}
        if wanted:
            lines = (f"{name} of {found[name]}, wanted {width}" for name, width in wanted.items())
            self.add("features of another size", f"{key}: {'; '.join(lines)}")
        self._boxes(key, regions)

    def _values(self, key: str, features: Tensor) -> None:
        """Whether they can tell one picture from another. Equal ones of a ground truth are of equal things."""
        low, high = features.min(), features.max()
        if low == high and features.numel() > 1:
            self.add("features all zero" if high == 0 else "features constant", key)
        elif self.contract is None or self.contract.extractor != TRUTH:
            digest = hashlib.sha256(features.contiguous().numpy().tobytes()).digest()[:16]
            if (first := self.seen.setdefault(digest, key)) != key and not self._of_one_picture(first, key):
                self.add("features repeated", f"{key} has those of {first}")

    def _of_one_picture(self, *keys: str) -> bool:
        """Whether the files of the pictures are equal, as far as they were read."""
        return len({self.files.get(key, key) for key in keys}) == 1

    def _widths(self) -> dict[str, int]:
        """Of each field, as the contract has it."""
        if self.contract is None:
            return {}
        size, classes = self.contract.feature_size, len(self.contract.class_names)
        return {"features": size, "whole": self.contract.whole_size or size} | ({"classes": classes} if classes else {})

    def _boxes(self, key: str, regions: Regions) -> None:
        boxes = regions.boxes
        if not (torch.isfinite(boxes).all() and torch.isfinite(regions.scores).all()):
            self.add("box not finite", key)
            return
        for kind, wrong in (
            ("box upside down", (boxes[:, 2:] < boxes[:, :2]).any(1)),
            ("box outside", ((boxes < -SLACK) | (boxes > 1 + SLACK)).any(1)),
        ):
            if wrong.any():
                self.add(kind, f"{key}: {_shown(boxes[wrong][0])}")
        if ((regions.scores < 0) | (regions.scores > 1 + SLACK)).any():
            self.add("score outside", key)

    def report(self) -> CheckReport:
        if not self.records:
            self.add("no records", "")
        elif (bare := self.found.get("no words")) is not None and bare.count == self.records:
            del self.found["no words"]
            self.found[NO_TEXT] = CheckFinding(NO_TEXT, bare.severity, bare.count)
        order = list(KINDS)
        findings = sorted(self.found.values(), key=lambda f: (f.severity != "error", order.index(f.kind)))
        failed = self.found["not extracted"].count if "not extracted" in self.found else 0
        percent = {name: 100 * count / max(1, self.records) for name, count in sorted(self.covered.items())}
        if "regions" in percent:  # of all that were asked for
            percent["regions"] = 100 * self.covered["regions"] / max(1, self.records + failed)
        return CheckReport(self.records, dict(self.splits), {n: round(p, 2) for n, p in percent.items()}, findings)


def _leak(*splits: str) -> Severity:
    """Of a picture in both: scores that are wrong without a word are worse than a run that fails."""
    return "error" if any(split.startswith(SCORED) for split in splits) else "warning"


def _content(record: Record) -> tuple[str | None, str | None]:
    """The sha256 of the picture's file, None where there is no file; and what is wrong with it."""
    if record.image is None:
        return None, None if record.regions is not None else "the record names no picture"
    try:
        content = hashlib.sha256(read_bytes(record.image)).hexdigest()
    except OSError as error:
        return None, f"{record.image}: {error.strerror or error}"
    except DataError as error:
        return None, str(error)
    try:
        open_picture(record.image)
    except DataError as error:
        return content, str(error)
    return content, None


def _shown(box: Tensor) -> str:
    return "(" + ", ".join(f"{side:.3f}" for side in box.tolist()) + ")"
