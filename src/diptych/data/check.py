"""Check a data set before training on it: `diptych check DATA`.

A finding is an error if training would fail or silently read wrong input, or if scores on a test split would be wrong.
All other findings are warnings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any
from unicodedata import normalize

import torch
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.core.contract import PARTS, Part
from diptych.core.labels import alike
from diptych.core.record import Fingerprint
from diptych.core.shares import FEWEST
from diptych.data.extract.extract import misplaced_boxes
from diptych.data.findings import EXAMPLES, KINDS, NO_TEXT, TURNED, CheckFinding, CheckReport, Severity
from diptych.data.formats.splits import SCORED
from diptych.data.leakage import UNKNOWN, Fingerprints, Leakage, SeenImages, copies_across
from diptych.data.store.mirror import is_foreign, turn_of
from diptych.data.store.store import FAILURES, Store
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import parse_json, text_of
from diptych.runtime.terminal import printable
from diptych.vision.archives import read_bytes
from diptych.vision.decoder import shared_decoders
from diptych.vision.detectors.ground_truth import KIND as TRUTH
from diptych.vision.features.profile import differences
from diptych.vision.fingerprints import image_fingerprint

HALF, SHOWN = 0.5, 0.3  # minimum IoU of a region with an expression's box (HALF) or an object's box (SHOWN)
SLACK = 1e-3  # because of rounding, a box may extend outside the image by this share of the image's side


def check(
    data: Store | Iterable[Record],
    model: FeatureContract | None = None,
    pictures: bool = True,
    tasks: Mapping[str, Callable[[Record], bool]] | None = None,
    seen: SeenImages | None = None,
    stored: bool = False,
    progress: Callable[[int], object] | None = None,
    parts: Collection[Part] = tuple(PARTS),
) -> CheckReport:
    """Check every record.

    If `pictures` is True, every image is opened. `model`: the feature contract that a model requires. `parts`: the
    parts of regions that it reads.

    `seen`: fingerprints of the images that a model was trained on. Images of val and test splits are compared with
    them. `tasks`: for each task, a function that returns True if the task can train on a record. The report counts
    these records for each task and split. `stored`: boxes were converted from stored pixels, so images that EXIF
    turns are not reported. `progress`: called with the number of records that were checked since the last call.
    If an image of a store cannot be opened, this is only a warning, because training reads the stored features.
    """
    checker = _Checker(data.contract if isinstance(data, Store) else None, pictures, tasks or {})
    for record in checker.opened(_records(data, checker)):
        checker.inspect(record)
        if progress is not None:
            progress(1)
    if isinstance(data, Store):
        try:
            if data.detector() is None and data.contract.weights:
                checker.add("no detector", str(data.folder))
        except CheckpointError as error:
            checker.add("detector", str(error))
        failures = data.folder / FAILURES
        for failure in map(parse_json, filter(None, text_of(failures).split("\n") if failures.is_file() else ())):
            checker.add("not extracted", f"{failure['key']}: {failure['reason']}")
        for line in differences(data.contract, model, parts) if model is not None else ():
            checker.add("contract", line)
    if stored:
        checker.findings.pop(TURNED, None)
    checker.compare_splits()
    trained_on = None if model is None else checker.compare_model(seen)
    return replace(checker.report(), trained_on=trained_on)


def _records(data: Store | Iterable[Record], checker: _Checker) -> Iterator[Record]:
    if not isinstance(data, Store):
        yield from data
        return
    for index in range(len(data)):
        try:
            yield data.record(index)
        except DataError as error:
            checker.add("record damaged", str(error))


class _Checker:
    """Inspects records one by one and collects findings."""

    def __init__(
        self, contract: FeatureContract | None, pictures: bool, tasks: Mapping[str, Callable[[Record], bool]]
    ) -> None:
        self.contract, self.pictures, self.tasks = contract, pictures, tasks
        self.uses: dict[str, Counter[str]] = {name: Counter() for name in tasks}
        self.findings: dict[str, CheckFinding] = {}
        self.records = 0
        self.splits: Counter[str] = Counter()
        self.covered: Counter[str] = Counter(captions=0, questions=0)
        self.capitals = 0
        self.labels: dict[str, set[str]] = {}  # {task: labels in the data}
        self.letters: set[str] = set()  # characters of the training texts, converted to lower case
        self.scored_letters: dict[str, str] = {}  # {character of a held-out text: key of the first record with it}
        self.keys: dict[str, str] = {}  # {key of a record: split}
        self.features: dict[bytes, str] = {}  # {digest of a record's features: key of the first record with them}
        self.files: dict[str, str] = {}  # {key of a record: sha256 of its image}
        self.prints: dict[str, dict[str, Fingerprint]] = {}  # {split: {key of a record: fingerprint of its image}}
        self.contents: dict[str, tuple[str, str]] = {}  # {sha256 of an image: (key, split) of the first record with it}

    def add(self, kind: str, example: str, severity: Severity | None = None) -> None:
        finding = self.findings.setdefault(kind, CheckFinding(kind, severity or KINDS[kind][0]))
        finding.count += 1
        if severity == "error":
            finding.severity = "error"
        if len(finding.examples) < EXAMPLES:
            finding.examples.append(printable(example))

    def opened(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield each record after its image was opened. Threads open the images of the next records in the meantime."""
        if not self.pictures:
            yield from records
            return
        left = iter(records)
        with ThreadPoolExecutor(2) as pool:
            while batch := list(islice(left, 64)):
                for record, (content, problem, own, misplaced) in zip(batch, pool.map(_content, batch), strict=True):
                    self.covered["picture"] += content is not None and problem is None
                    if problem is not None:
                        kind = "picture unreadable" if content is not None else "picture missing"
                        self.add(kind, f"{record.key}: {problem}", _unless_extracted(record))
                    elif content is not None:
                        self._compare(record, content)
                        if turn_of(record) > 1:
                            self.add(TURNED, record.key)
                    if misplaced is not None:
                        self.add("boxes misplaced", f"{record.key}: {misplaced}", _unless_extracted(record))
                    yield record if own is None else replace(record, fingerprint=own)

    def compare_splits(self) -> None:
        """Report images of val and test splits that are near copies of an image of another split, such as rescaled
        copies."""
        for (key, split), (copy, other) in copies_across(self.prints, SCORED):
            if key not in self.files or self.files[key] != self.files.get(copy):
                self.add("near copy in two splits", f"{key} ({split}) is like {copy} ({other})")

    def compare_model(self, seen: SeenImages | None) -> Leakage:
        """Count the images of val and test splits that the model was trained on, and report them."""
        scored = [one for split, prints in self.prints.items() if split.startswith(SCORED) for one in prints.values()]
        tested = sum(count for split, count in self.splits.items() if split.startswith(SCORED))
        trained_on = UNKNOWN if seen is None else seen.leakage(Fingerprints.of(scored, tested - len(scored)))
        if trained_on.exact or trained_on.near:
            self.add("trained on", trained_on.text, "error" if trained_on.exact else "warning")
            self.findings["trained on"].count = (trained_on.exact or 0) + (trained_on.near or 0)
        return trained_on

    def _compare(self, record: Record, content: str) -> None:
        """Report the record's image if an earlier record has the same file. `content`: the sha256 of the file."""
        self.files[record.key] = content
        key, split = self.contents.setdefault(content, (record.key, record.split))
        if split != record.split:
            example = f"{record.key} ({record.split}) is {key} ({split})"
            self.add("picture in two splits", example, _leak(split, record.split))
        elif key != record.key:
            self.add("same picture twice", f"{record.key} is {key} ({split})")

    def inspect(self, record: Record) -> None:
        self.records += 1
        self.splits[record.split] += 1
        if record.fingerprint is not None:
            self.prints.setdefault(record.split, {})[record.key] = record.fingerprint
        if (split := self.keys.get(record.key)) is not None:
            self.add("key twice", record.key)
            if split != record.split:
                self.add("key in two splits", f"{record.key} ({split} and {record.split})", _leak(split, record.split))
        self.keys.setdefault(record.key, record.split)
        for name, learns_from in self.tasks.items():
            self.uses[name].update([record.split] if learns_from(record) else [])
        self._words(record)
        if record.regions is not None:
            self.covered["regions"] += len(record.regions) > 0
            self._regions(record.key, record.regions)
            self._pointing(record, record.regions)
        for box in record.marked("box"):
            if not (0 - SLACK <= box[0] <= box[2] <= 1 + SLACK and 0 - SLACK <= box[1] <= box[3] <= 1 + SLACK):
                self.add("true box wrong", f"{record.key}: {tuple(box)}")

    def _words(self, record: Record) -> None:
        words = record.words()
        self.covered.update({name: 1 for name, items in words.items() if items})
        for text in (normalize("NFC", one) for one in record.marked("text", "tagged")):
            # The tokenizers library converts every Σ to σ. `str.lower` of a whole word would end in ς.
            lower = "".join(map(str.lower, text)) if "Σ" in text else text.lower()
            self.capitals += text != lower
            if record.split.startswith(SCORED):
                new = set(lower) - self.scored_letters.keys()
                self.scored_letters.update(dict.fromkeys(new, record.key))
            else:
                self.letters.update(lower)
        if is_foreign(record):
            self.add("text not in English", record.key)
        for caption in record.captions:
            if not caption.strip():
                self.add("caption empty", record.key)
        for choices in record.choices:
            if nothing := [number for number in choices.named if number >= len(record.objects)]:
                self.add("tag of nothing", f"{choices.key}: [{nothing[0]}] of {len(record.objects)} objects")
        for question in record.questions:
            if not question.answers:
                self.add("question without answers", question.key)
        for task, items in record.more.items():
            labelled = [one for one in items if len(one.answers) == 1]
            self.labels.setdefault(task, set()).update(one.answers[0].strip() for one in labelled)
            self._contradictions(record.key, ((task, one.text, one.boxes, one.answers[0].strip()) for one in labelled))
        self._contradictions(record.key, (("nlvr", one.text, (), str(one.true)) for one in record.statements))
        if not any(words.values()):
            self.add("no words", record.key)

    def _contradictions(self, key: str, items: Iterable[tuple[str, str, tuple[Any, ...], str]]) -> None:
        """Report texts of an image that have two labels. `items`: task, text, boxes and label."""
        known: dict[tuple[Any, ...], str] = {}
        for task, text, boxes, label in items:
            if (other := known.setdefault((task, text, boxes), label)) != label:
                self.add("text with two labels", f"{key}: {task}, “{text}” is {other} and {label}")

    def _pointing(self, record: Record, regions: Regions) -> None:
        """Report texts about a box, such as referring expressions, if no region overlaps the box sufficiently."""
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
        sizes = {name: tensor.shape[-1] for name, tensor in numbers.items()}
        wanted = {name: size for name, size in self._wanted_sizes().items() if sizes.get(name, size) != size}
        if wanted:
            lines = (f"{name} of {sizes[name]}, expected {size}" for name, size in wanted.items())
            self.add("features of another size", f"{key}: {'; '.join(lines)}")
        self._boxes(key, regions)

    def _values(self, key: str, features: Tensor) -> None:
        """Report features that are constant, or equal to those of another image. Equal features of ground-truth regions
        are not reported."""
        low, high = features.min(), features.max()
        if low == high and features.numel() > 1:
            self.add("features all zero" if high == 0 else "features constant", key)
        elif self.contract is None or self.contract.extractor != TRUTH:
            digest = hashlib.sha256(features.contiguous().numpy().tobytes()).digest()[:16]
            first = self.features.setdefault(digest, key)
            # Equal features are a fault only if the two image files differ.
            if self.files.get(first, first) != self.files.get(key, key):
                self.add("features repeated", f"{key} has the features of {first}")

    def _wanted_sizes(self) -> dict[str, int]:
        """Return the length of each feature vector that the feature contract prescribes."""
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
                self.add(kind, f"{key}: ({', '.join(f'{side:.3f}' for side in boxes[wrong][0].tolist())})")
        if ((regions.scores < 0) | (regions.scores > 1 + SLACK)).any():
            self.add("score outside", key)

    def report(self) -> CheckReport:
        if not self.records:
            self.add("no records", "")
        elif (bare := self.findings.get("no words")) is not None and bare.count == self.records:
            del self.findings["no words"]
            self.findings[NO_TEXT] = CheckFinding(NO_TEXT, bare.severity, bare.count)
        if self.letters:
            for letter in sorted(self.scored_letters.keys() - self.letters):
                self.add("letters not in training", f"{letter} (U+{ord(letter):04X}) in {self.scored_letters[letter]}")
        for task, labels in self.labels.items():
            for group in alike(labels):
                self.add("labels alike", f"{task}: {', '.join(map(ascii, group))}")
        for name, count in self.splits.items():
            if name.startswith(SCORED) and count < FEWEST:
                self.add("split too small", f"{name}: {count}")
        if self.records and "train" not in self.splits:
            self.add("no train split", ", ".join(sorted(self.splits)))
        order = list(KINDS)
        findings = sorted(self.findings.values(), key=lambda f: (f.severity != "error", order.index(f.kind)))
        failed = self.findings["not extracted"].count if "not extracted" in self.findings else 0
        percent = {name: 100 * count / max(1, self.records) for name, count in sorted(self.covered.items())}
        if "regions" in percent:  # here, records whose extraction failed count too
            percent["regions"] = 100 * self.covered["regions"] / max(1, self.records + failed)
        coverage = {name: round(value, 2) for name, value in percent.items()}
        uses = {name: dict(counts) for name, counts in self.uses.items()}
        return CheckReport(self.records, self.capitals, dict(self.splits), coverage, findings, uses)


def _leak(*splits: str) -> Severity:
    """Return the severity of an image that occurs in all these splits: an error if one of them is a val or test
    split."""
    return "error" if any(split.startswith(SCORED) for split in splits) else "warning"


def _unless_extracted(record: Record) -> Severity:
    return "error" if record.regions is None else "warning"


def _content(record: Record) -> tuple[str | None, str | None, Fingerprint | None, str | None]:
    """Open the record's image. Return its sha256, the reason if it cannot be opened, its fingerprint, and the reason if
    its boxes are misplaced.

    A value that is unknown or does not apply is None. The sha256 of an image that may not be read is "".
    """
    if record.image is None:
        return None, None if record.regions is not None else "the record names no image", None, None
    try:
        content = hashlib.sha256(read_bytes(record.image)).hexdigest()
    except OSError as error:
        missing = not isinstance(error, PermissionError)
        return None if missing else "", f"{record.image}: {error.strerror or error}", None, None
    except DataError as error:
        return None, str(error), None, None
    try:
        pixels = shared_decoders().open(record.image)
    except DataError as error:
        return content, str(error), None, None
    return content, None, image_fingerprint(pixels), misplaced_boxes(record, pixels.shape[1::-1])
