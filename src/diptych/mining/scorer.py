"""The weak semantic model of mining: logistic regression on features, some of which a detector or model makes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from diptych.core import Record, Regions, Sample, collate
from diptych.data.formats.table import read
from diptych.mining.judge import features
from diptych.mining.judge.decode import measure
from diptych.mining.judge.logistic import Logistic, auc, auc_interval, threshold
from diptych.mining.judge.scoring import Pair, Scorer
from diptych.mining.judge.statistics import statistics
from diptych.mining.settings import PictureRules
from diptych.mining.tables import digest
from diptych.runs.detectors import open_detector
from diptych.runs.folder import ModelFolder, open_model
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import bytes_of, parse_json, text_of, write_atomically
from diptych.tasks.matching import MAX_WORDS, can_match, match_scores
from diptych.tasks.run import encode
from diptych.tasks.two_towers import TwoTowers
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.detectors.load import load_detector
from diptych.vision.pictures import to_picture

FILE, DETECTOR, MODEL = "scorer.json", "detector", "model"
HELD_OUT = 4  # every fourth picture
PRECISION = 0.9
REMEMBERED = 4_096  # pictures whose regions are kept
MEASURED = PictureRules.model_validate(
    {"small_file": None, "large_file": None, "sides": None, "ratio": None, "one_colour": None}
)


class Reader:
    """Features of pairs. A detector tells what is there, a model how text and picture go together; either may lack."""

    def __init__(self, detector: Detector | None = None, model: ModelFolder | None = None) -> None:
        self.detector, self.model = detector, model
        self.names = (*features.TEXT, *features.PICTURE, *features.ACROSS)
        if detector is not None:
            self.names += features.SEEN
            self.classes = {word: name for name in detector.contract.class_names for word in _words(name)}
        if model is not None:
            if model.detector is None:
                raise CheckpointError(
                    f"{model.folder} has no detector/ folder, so it cannot read pictures; give another"
                )
            self.looker = load_detector(model.detector)
            self.names += tuple(name for name in features.MODEL if self._can(name))

    def _can(self, name: str) -> bool:
        assert self.model is not None
        return can_match(self.model.model) if name == "match" else isinstance(self.model.model, TwoTowers)

    def table(self, pairs: Sequence[Pair]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A row a pair, a column a name."""
        pictures = {id(pair.picture): pair for pair in pairs}
        measured = {key: self._measure(pair) for key, pair in pictures.items()}
        rows = []
        for pair in pairs:
            measurement = measured[id(pair.picture)]
            row = [
                *features.of_text(pair),
                *features.of_picture(pair.row, measurement.statistics),
                *features.around(pair),
            ]
            if self.detector is not None:
                row += features.seen_and_named(features.named_in(pair.text, self.classes), measurement.seen)
            rows.append(row)
        table = np.array(rows, np.float64)
        return table if self.model is None else np.hstack([table, self._by_model(pairs, measured)])

    def _measure(self, pair: Pair) -> _Measured:
        image = Image.open(io.BytesIO(pair.picture)).convert("RGB")
        picture = to_picture(image)
        found = _Measured(statistics(image))
        if self.detector is not None:
            found.seen = _seen(self._regions(self.detector, picture), self.detector.contract.class_names)
        if self.model is not None:
            found.regions = self._regions(self.looker, picture).first(self.model.architecture.config.max_regions)
        return found

    def _regions(self, detector: Detector, picture: Picture) -> Regions:
        return detector.detect([picture], [Record("mined")])[0]

    @torch.inference_mode()
    def _by_model(self, pairs: Sequence[Pair], measured: dict[int, _Measured]) -> np.ndarray[Any, np.dtype[np.float64]]:
        assert self.model is not None
        model, tokens = self.model.model, self.model.tokens
        samples = [
            Sample(str(n), str(n), measured[id(pair.picture)].regions, encode(tokens, pair.text, MAX_WORDS))
            for n, pair in enumerate(pairs)
        ]
        batch = collate(samples).to(next(model.parameters()).device)
        columns = []
        if self._can("similarity"):
            towers: Any = model
            columns.append((towers.embed_pictures(batch) * towers.embed_texts(batch)).sum(1).float().cpu().numpy())
        if self._can("match"):
            columns.append(match_scores(model, batch).cpu().numpy())
        return np.stack(columns, 1).astype(np.float64) if columns else np.zeros((len(pairs), 0))


@dataclass
class _Measured:
    statistics: np.ndarray[Any, np.dtype[np.float64]]
    seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    regions: Regions | None = None


def _seen(regions: Regions, names: Sequence[str]) -> dict[str, tuple[float, int]]:
    classes = regions.classes
    if classes is None or not len(classes):
        return {}
    best = classes.argmax(1)
    return {
        names[number]: (float(classes[:, number].max()), int((best == number).sum()))
        for number in sorted(set(best.tolist()))
        if number < len(names)
    }


def _words(name: str) -> set[str]:
    return {name.lower(), name.lower().split()[-1]}


@dataclass(frozen=True)
class WeakScorer:
    """What `diptych mine scorer` trained."""

    version: str
    least: float
    reader: Reader
    model: Logistic

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        return [float(one) for one in self.model(self.reader.table(pairs))]


@cache
def load_scorer(folder: str) -> Scorer:
    """Once in a process."""
    card = _card(Path(folder))
    detector = Path(folder) / DETECTOR
    model = Path(folder) / MODEL
    reader = Reader(
        load_detector(detector) if detector.is_dir() else None, open_model(model) if model.is_dir() else None
    )
    if list(reader.names) != card["features"]:
        raise CheckpointError(
            f"{folder} was trained on other features than its detector and model give; train it again"
        )
    torch.set_num_threads(1)
    return WeakScorer(card["version"], float(card["least"]), reader, Logistic.load(Path(folder), len(reader.names)))


def scorer_version(folder: str) -> str:
    return str(_card(Path(folder))["version"])


def _card(folder: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = parse_json(text_of(folder / FILE))
        if not {"version", "least", "features"} <= set(card):
            raise ValueError("no version, least and features in it")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"no scorer in {folder}: {error}; `diptych mine scorer LABELLED --out {folder}`"
        ) from error
    return card


def labelled(paths: Iterable[Path]) -> tuple[list[Pair], list[bool], list[str]]:
    """Pairs, whether each is true, and the picture of each. Lines that are still open are passed over."""
    pairs, labels, names = [], [], []
    for path in paths:
        bodies: dict[str, tuple[bytes, dict[str, Any]]] = {}
        for number, line in enumerate(text_of(path).splitlines(), start=1):
            try:
                entry = parse_json(line)
                name, text, true = entry["image"], entry["statement"], entry["true"]
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path.name}, line {number}: {error!r}; wanted image, statement and true") from error
            if true is None:
                continue
            if not isinstance(true, bool) or not isinstance(text, str) or not isinstance(name, str):
                raise DataError(f"{path.name}, line {number}: wanted two texts and `true` or `false`; correct it")
            if name not in bodies:
                bodies[name] = _picture(path.parent / name, f"{path.name}, line {number}")
            body, row = bodies[name]
            about = {key: entry[key] for key in ("title", "address") if isinstance(entry.get(key), str)}
            pairs.append(Pair(text, str(entry.get("kind") or "caption"), body, row | about))
            labels.append(true)
            names.append(name)
    return pairs, labels, names


def _picture(path: Path, where: str) -> tuple[bytes, dict[str, Any]]:
    try:
        body = bytes_of(path)
    except OSError as error:
        raise DataError(f"{where}: no picture {path}: {error.strerror}; correct the line, or leave it out") from error
    row, fails, _ = measure(body, MEASURED)
    if fails:
        raise DataError(
            f"{where}: {path} is no picture that can be read ({row['why']}); correct the line, or leave it out"
        )
    return body, row


def train_scorer(
    paths: Sequence[Path],
    out: Path,
    model: str | None = None,
    detector: str | None = None,
    precision: float = PRECISION,
) -> dict[str, Any]:
    """Writes the scorer; hands back its card. Every fourth picture, with all its texts, is held out: a pair is kept
    from the score on of which, among those, `precision` (0 to 1) are true."""
    pairs, labels, names = labelled(paths)
    if len(set(names)) < 2 * HELD_OUT:
        raise DataError(f"{len(set(names))} labelled pictures; wanted {2 * HELD_OUT} at the least: label more")
    opened = open_model(Path(model)) if model is not None else None
    found = open_detector(detector, []) if detector is not None else None
    reader = Reader(found, opened)
    table, truth = reader.table(pairs), np.array(labels)
    numbers = np.unique(names, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(int(numbers.max()) + 1)
    held = order[numbers] % HELD_OUT == HELD_OUT - 1
    fitted = Logistic.fit(table[~held], truth[~held])
    scores = fitted(table[held])
    least = threshold(scores, truth[held], precision)
    low, high = auc_interval(scores, truth[held], numbers[held].astype(np.int64))
    ranked = sorted(zip(reader.names, fitted.weights.tolist(), strict=True), key=lambda one: -abs(one[1]))
    card = {
        "version": digest([fitted.weights.tolist(), fitted.bias, reader.names]), "least": round(least, 6),
        "features": list(reader.names), "labels": len(labels), "true": int(truth.sum()), "pictures": len(set(names)),
        "held_out": int(held.sum()), "auc": round(auc(scores, truth[held]), 4),
        "interval": [round(low, 4), round(high, 4)], "precision_wanted": precision,
        "weights": {name: round(weight, 4) for name, weight in ranked},
    }  # fmt: skip
    fitted.save(out)
    if found is not None:
        (out / DETECTOR).mkdir(exist_ok=True)
        found.save(out / DETECTOR)
    if opened is not None:
        opened.save(out / MODEL)
    write_atomically(out / FILE, json.dumps(card, indent=1).encode())
    return card


def held_out_hashes(path: Path) -> list[tuple[str, int | None]]:
    """Of the pictures of val and test splits: sha256 and difference hash."""
    from diptych.data.store.store import Store

    is_store = (path / "store.json").is_file()
    store = Store(path) if is_store else None
    records = [store.words(row) for row in range(len(store))] if store is not None else read(path)
    found: list[tuple[str, int | None]] = []
    for record in records:
        if record.split not in ("train", "web") and record.image is not None:
            try:
                row, _, _ = measure(bytes_of(record.image), MEASURED)
            except OSError as error:
                raise DataError(
                    f"{path}: {record.key} has no picture any more ({error.strerror}); put it back"
                ) from error
            found.append((row["sha256"], row["dhash"]))
    if not found:
        raise DataError(f"{path} has no pictures in a val or test split; leave --exclude out, or give what has")
    return found
