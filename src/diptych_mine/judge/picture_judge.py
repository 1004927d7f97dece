"""Train a classifier of the images that mining keeps, on a folder with a subfolder per class, such as `natural`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diptych.core import Record
from diptych.runtime.errors import CheckpointError, DataError, explained
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych.runtime.outputs import check_whole, whole_folder
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.grid import Grid
from diptych.vision.detectors.load import load_detector
from diptych_mine.judge.logistic import HELD_OUT, Logistic, fit_and_test
from diptych_mine.judge.statistics import NAMES, small, statistics
from diptych_mine.tables import digest

FILE = "judge.json"
GOOD = ("natural", "safe", "good", "keep")  # possible names of the subfolder of images to keep
BACKBONE = "backbone"  # subfolder of the judge's folder
KINDS = ("statistics", BACKBONE)


@dataclass(frozen=True)
class PictureJudge:
    """A judge: logistic regression on statistics of the image and, optionally, on features of a backbone.

    `version` is a digest of all weights.
    """

    name: str
    version: str
    least: float
    model: Logistic
    grid: Detector | None = None

    def judge(self, pictures: Sequence[Tensor]) -> list[float]:
        return [float(score) for score in self.model(_features(pictures, self.grid))]

    @classmethod
    def load(cls, folder: Path) -> PictureJudge:
        check_whole(folder)
        with explained(CheckpointError, f"cannot read {folder / FILE}", "train the judge again"):
            settings = parse_json(text_of(folder / FILE))
            name, version, least, kind = (settings[key] for key in ("name", "version", "least", "kind"))
        if kind not in KINDS:
            raise CheckpointError(f"{folder / FILE}: found `kind` {kind!r}, expected {' or '.join(KINDS)}; train again")
        grid = load_detector(folder / BACKBONE) if kind == BACKBONE else None
        width = grid.contract.feature_size if grid is not None else 0
        return cls(str(name), str(version), float(least), Logistic.load(folder, len(NAMES) + width), grid)


def _features(pictures: Sequence[Tensor], grid: Detector | None) -> NDArray[np.float64]:
    table = np.stack([statistics(Image.fromarray(one.permute(1, 2, 0).numpy())) for one in pictures])
    if grid is None:
        return table
    regions = grid.detect(list(pictures), [Record(str(number)) for number in range(len(pictures))])
    return np.hstack([table, np.stack([cast(Tensor, one.whole).double().numpy() for one in regions])])


def train_judge(
    classes: Path, out: Path, precision: float = 0.95, backbone: str | None = None, weights: Path | None = None
) -> dict[str, Any]:
    """Train a judge and write it to `out`.

    Returns its card: number of images per class, and the AUC on every fourth image with its interval. `backbone`: a
    name in torchvision, timm, open_clip or the hub, as after `grid:` in detector names. It is saved with the judge.
    Raises DataError if `classes` has no subfolder of images to keep, or of images to drop, or too few images.
    """
    from diptych.vision.decoder import shared_decoders
    from diptych.vision.image_files import find_pictures
    from diptych.vision.pictures import to_picture

    grid = Grid(Backbone.of(backbone, weights=weights)) if backbone is not None else None
    table, labels, test = [], [], []
    counts: dict[str, int] = {}
    folders = sorted(path for path in classes.iterdir() if path.is_dir()) if classes.is_dir() else []
    if not any(folder.name in GOOD for folder in folders) or len(folders) < 2:
        there = ", ".join(folder.name for folder in folders) or "none"
        wanted = f"put images to keep into a subfolder called {' or '.join(GOOD)}, and all others into another one"
        raise DataError(f"{classes} has the subfolders: {there}; {wanted}")
    for folder in folders:
        for number, path in enumerate(find_pictures(folder)):
            resized = small(Image.fromarray(shared_decoders().open(path)))
            table.append(_features([to_picture(resized)], grid)[0])
            labels.append(folder.name in GOOD)
            test.append(number % HELD_OUT == HELD_OUT - 1)
            counts[folder.name] = counts.get(folder.name, 0) + 1
    if {good for good, held in zip(labels, test, strict=True) if held} != {True, False}:
        images_by_folder = ", ".join(f"{counts.get(folder.name, 0)} in {folder.name}" for folder in folders)
        wanted = f"two subfolders, one of images to keep, need {HELD_OUT} or more, as every {HELD_OUT}th is held out"
        raise DataError(f"{classes} has too few images ({images_by_folder}); {wanted}: add images")
    images = np.arange(len(labels))
    model, least, figures = fit_and_test(np.stack(table), np.array(labels), np.array(test), images, precision)
    card = {
        "name": out.name, "least": round(min(0.5, least), 6), "kind": BACKBONE if grid is not None else "statistics",
        "version": digest([model.weights.tolist(), model.bias, grid.contract.weights if grid is not None else None]),
        "backbone": backbone, "pictures": counts, "features": list(NAMES), **figures,
    }  # fmt: skip
    with whole_folder(out, "judge") as temporary:
        model.save(temporary)
        if grid is not None:
            grid.save(temporary / BACKBONE)
        write_atomically(temporary / FILE, json.dumps(card, indent=1).encode())
    return card
