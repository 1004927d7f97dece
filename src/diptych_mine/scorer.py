"""The weak scorer of mining: logistic regression on features of pairs of image and text.

ImageBERT (section 3) calls it "weak semantic model".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel

from diptych.core import Record, Regions, Sample, collate
from diptych.data.formats.table import read
from diptych.runs.evaluation.retrieve import model_fingerprint
from diptych.runs.folder import ModelFolder, open_model
from diptych.runtime.configs import first_problem
from diptych.runtime.errors import CheckpointError, DataError, explained
from diptych.runtime.files import bytes_of, parse_json, text_of, write_atomically
from diptych.runtime.outputs import check_whole, whole_folder
from diptych.tasks.matching import MAX_WORDS, can_match, match_scores
from diptych.tasks.run import encode
from diptych.tasks.two_towers import TwoTowers
from diptych.vision.decoder import shared_decoders
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import open_detector
from diptych.vision.pictures import as_picture
from diptych_mine.judge import features
from diptych_mine.judge.decode import measure
from diptych_mine.judge.logistic import HELD_OUT, Logistic, fit_and_test
from diptych_mine.judge.scoring import Pair, Scorer
from diptych_mine.judge.statistics import statistics
from diptych_mine.settings import PictureRules
from diptych_mine.tables import digest

FILE, DETECTOR, MODEL = "scorer.json", "detector", "model"
PRECISION = 0.9
MEASURED = PictureRules(small_file=None, large_file=None, sides=None, ratio=None, one_colour=None)


class Reader:
    """Computes the features of image-text pairs.

    An optional detector adds features of detected objects. An optional model adds its matching score.
    """

    def __init__(self, detector: Detector | None = None, model: ModelFolder | None = None) -> None:
        self.detector, self.model = detector, model
        self.names = (*features.TEXT, *features.PICTURE, *features.ACROSS)
        if detector is not None:
            self.names += features.SEEN
            self.classes = {word: name for name in detector.contract.class_names for word in _words(name)}
        if model is not None:
            if model.detector is None:
                raise CheckpointError(
                    f"{model.folder} has no detector/ folder, so it cannot read images; choose another model"
                )
            self.model_detector = load_detector(model.detector)
            self.names += tuple(name for name in features.MODEL if self._can(name))

    def _can(self, name: str) -> bool:
        assert self.model is not None
        return can_match(self.model.model) if name == "match" else isinstance(self.model.model, TwoTowers)

    def table(self, pairs: Sequence[Pair]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the features as (N, F): a row per pair, a column per name in `names`."""
        pictures = {id(pair.picture): pair for pair in pairs}
        measured = {key: self._measure(pair) for key, pair in pictures.items()}
        rows = []
        for pair in pairs:
            measures = measured[id(pair.picture)]
            row = [*features.of_text(pair), *features.of_picture(pair.row, measures.statistics), *features.across(pair)]
            if self.detector is not None:
                row += features.seen_and_named(features.named_in(pair.text, self.classes), measures.seen)
            rows.append(row)
        table = np.array(rows, np.float64)
        return table if self.model is None else np.hstack([table, self._by_model(pairs, measured)])

    def _measure(self, pair: Pair) -> _Measures:
        pixels = shared_decoders().read(pair.picture, "the file")
        picture, measures = as_picture(pixels), _Measures(statistics(Image.fromarray(pixels)))
        if self.detector is not None:
            measures.seen = _seen(self._regions(self.detector, picture), self.detector.contract.class_names)
        if self.model is not None:
            regions = self._regions(self.model_detector, picture)
            measures.regions = regions.first(self.model.architecture.config.max_regions)
        return measures

    def _regions(self, detector: Detector, picture: Picture) -> Regions:
        return detector.detect([picture], [Record("mined")])[0]

    @torch.inference_mode()
    def _by_model(self, pairs: Sequence[Pair], measured: dict[int, _Measures]) -> np.ndarray[Any, np.dtype[np.float64]]:
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
class _Measures:
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
    """A scorer that `diptych mine scorer` trained."""

    version: str
    least: float
    reader: Reader
    model: Logistic

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        return [float(one) for one in self.model(self.reader.table(pairs))]


@cache
def load_scorer(folder: str) -> Scorer:
    """Load the scorer in a folder, once per process. Raises CheckpointError if it is damaged."""
    path = Path(folder)
    card, detector, model = _card(path), path / DETECTOR, path / MODEL
    opened = load_detector(detector) if detector.is_dir() else None
    reader = Reader(opened, open_model(model) if model.is_dir() else None)
    if list(reader.names) != card["features"]:
        raise CheckpointError(f"the scorer in {folder} was trained with another detector or model; train it again")
    torch.set_num_threads(1)
    return WeakScorer(card["version"], float(card["least"]), reader, Logistic.load(path, len(reader.names)))


def scorer_version(folder: str) -> str:
    return str(_card(Path(folder))["version"])


def _card(folder: Path) -> dict[str, Any]:
    check_whole(folder)
    remedy = f"train one: diptych mine scorer LABELLED --out {folder}"
    with explained(CheckpointError, f"no scorer in {folder}", remedy):
        card: dict[str, Any] = parse_json(text_of(folder / FILE))
        if not {"version", "least", "features"} <= set(card):
            raise ValueError("the key `version`, `least` or `features` is missing")
    return card


class LabelledLine(BaseModel):
    """A line of a label file: an image, a text, and `true`, which is null until a person labels the pair."""

    image: str
    statement: str
    true: bool | None
    kind: str | None = None
    title: str | None = None
    address: str | None = None


def labelled(paths: Iterable[Path]) -> tuple[list[Pair], list[bool], list[str]]:
    """Return the labelled pairs, their labels, and the name of each pair's image. Lines without a label are skipped."""
    pairs, labels, names = [], [], []
    for path in paths:
        bodies: dict[str, tuple[bytes, dict[str, Any]]] = {}
        for number, text in enumerate(text_of(path).removesuffix("\n").split("\n"), start=1):
            where = f"{path.name}, line {number}"
            try:
                line = LabelledLine.model_validate(parse_json(text), strict=True)
            except ValueError as error:
                raise DataError(f"{where}: {first_problem(error)}; expected `image`, `statement`, `true`") from error
            if line.true is None:
                continue
            if line.image not in bodies:
                bodies[line.image] = _picture(path.parent / line.image, where)
            body, row = bodies[line.image]
            about = line.model_dump(include={"title", "address"}, exclude_none=True)
            pairs.append(Pair(line.statement, line.kind or "caption", body, row | about))
            labels.append(line.true)
            names.append(str(path.parent / line.image))
    return pairs, labels, names


def _picture(path: Path, where: str) -> tuple[bytes, dict[str, Any]]:
    with explained(DataError, f"{where}: cannot read {path}", "correct the line, or leave it out"):
        body = bytes_of(path)
    row, fails, _ = measure(body, MEASURED)
    if fails:
        raise DataError(f"{where}: {path} is not a readable image ({row['why']}); correct the line, or leave it out")
    return body, row


def train_scorer(
    paths: Sequence[Path],
    out: Path,
    model: str | None = None,
    detector: str | None = None,
    precision: float = PRECISION,
) -> dict[str, Any]:
    """Train a scorer and write it to `out`.

    Returns its model card. Every fourth image, with all its texts, is held out. The threshold is the lowest score for
    which at least the share `precision` of the held-out pairs above it is true.
    """
    pairs, labels, names = labelled(paths)
    if len(set(names)) < 2 * HELD_OUT:
        raise DataError(f"found {len(set(names))} labelled images, expected {2 * HELD_OUT} or more; label more images")
    opened = open_model(Path(model)) if model is not None else None
    named = open_detector(detector, []) if detector is not None else None
    reader, truth = Reader(named, opened), np.array(labels)
    numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
    order = np.random.default_rng(0).permutation(int(numbers.max()) + 1)
    test = order[numbers] % HELD_OUT == HELD_OUT - 1
    used = [None if named is None else named.contract.weights, None if opened is None else model_fingerprint(opened)]
    fitted, least, figures = fit_and_test(reader.table(pairs), truth, test, numbers, precision)
    ranked = sorted(zip(reader.names, fitted.weights.tolist(), strict=True), key=lambda one: -abs(one[1]))
    card = {
        "version": digest([fitted.weights.tolist(), fitted.bias, reader.names, *used]), "least": round(least, 6),
        "features": list(reader.names), "labels": len(labels), "true": int(truth.sum()), "pictures": len(set(names)),
        **figures, "precision_wanted": precision,
        "weights": {name: round(weight, 4) for name, weight in ranked},
    }  # fmt: skip
    with whole_folder(out, "scorer") as temporary:
        fitted.save(temporary)
        if named is not None:
            (temporary / DETECTOR).mkdir()
            named.save(temporary / DETECTOR)
        if opened is not None:
            opened.save(temporary / MODEL)
        write_atomically(temporary / FILE, json.dumps(card, indent=1).encode())
    return card


def held_out_hashes(path: Path) -> list[tuple[str, bytes | None]]:
    """Return the SHA-256 and perceptual hash of each image in the val and test splits of a store or other data.

    Raises DataError if an image is missing, or if there are no val and test splits.
    """
    from diptych.data.store.store import Store

    store = Store(path) if (path / "store.json").is_file() else None
    records = [store.words(row) for row in range(len(store))] if store is not None else read(path)
    hashes: list[tuple[str, bytes | None]] = []
    for record in records:
        if record.split not in ("train", "web") and record.image is not None:
            with explained(DataError, f"{path}: the image of {record.key} cannot be read", "restore the image"):
                row, _, _ = measure(bytes_of(record.image), MEASURED)
            hashes.append((row["sha256"], row["phash"]))
    if not hashes:
        raise DataError(f"{path} has no images in a val or test split; leave out --exclude, or pass other data")
    return hashes
