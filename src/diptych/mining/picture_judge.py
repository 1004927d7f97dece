"""A judge of pictures, learnt from a folder with one subfolder a class: `natural` against all others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from diptych.errors import CheckpointError, DataError
from diptych.files import write_atomically
from diptych.mining.judges import FILE
from diptych.mining.logistic import Logistic, auc, auc_interval, threshold
from diptych.mining.statistics import NAMES, statistics
from diptych.mining.tables import digest

GOOD = ("natural", "safe", "good", "keep")  # a subfolder of one of these names is what is kept
HELD_OUT = 4  # every fourth picture of a class


@dataclass(frozen=True)
class PictureJudge:
    """Logistic regression on statistics of the picture; `version` is of its weights."""

    name: str
    version: str
    least: float
    model: Logistic

    def judge(self, pictures: Sequence[Tensor]) -> list[float]:
        table = np.stack([statistics(Image.fromarray(one.permute(1, 2, 0).numpy())) for one in pictures])
        return [float(score) for score in self.model(table)]

    @classmethod
    def load(cls, folder: Path) -> PictureJudge:
        try:
            settings = json.loads((folder / FILE).read_text("utf-8"))
            name, version, least, kind = (settings[key] for key in ("name", "version", "least", "kind"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"cannot read {folder / FILE}: {error}; train the judge again") from error
        if kind != "statistics":
            raise CheckpointError(f"{folder} holds a judge of kind {kind!r}, wanted one that `diptych mine judge` made")
        return cls(str(name), str(version), float(least), Logistic.load(folder, len(NAMES)))


def train_judge(classes: Path, out: Path, precision: float = 0.95) -> dict[str, Any]:
    """Writes the judge; hands back its card: pictures by class, AUC on every fourth picture with its interval."""
    from diptych.vision.pictures import find_pictures, open_picture

    table, labels, held, names = [], [], [], []
    counts: dict[str, int] = {}
    folders = sorted(path for path in classes.iterdir() if path.is_dir()) if classes.is_dir() else []
    if not any(folder.name in GOOD for folder in folders) or len(folders) < 2:
        raise DataError(
            f"{classes} has the subfolders {', '.join(f.name for f in folders) or 'none'}; wanted one of what is to be "
            f"kept, called {' or '.join(GOOD)}, and one or more of what is not"
        )
    for folder in folders:
        for number, path in enumerate(find_pictures(folder)):
            picture = open_picture(path)
            table.append(statistics(Image.fromarray(picture.permute(1, 2, 0).numpy())))
            labels.append(folder.name in GOOD)
            held.append(number % HELD_OUT == HELD_OUT - 1)
            names.append(folder.name)
            counts[folder.name] = counts.get(folder.name, 0) + 1
    features, truth, test = np.stack(table), np.array(labels), np.array(held)
    model = Logistic.fit(features[~test], truth[~test])
    scores = model(features[test])
    least = min(0.5, threshold(scores, truth[test], precision))
    low, high = auc_interval(scores, truth[test], np.arange(int(test.sum())))
    card = {
        "name": out.name, "version": digest([model.weights.tolist(), model.bias]), "least": round(least, 6),
        "kind": "statistics", "pictures": counts, "auc": round(auc(scores, truth[test]), 4),
        "interval": [round(low, 4), round(high, 4)], "held_out": int(test.sum()), "features": list(NAMES),
    }  # fmt: skip
    model.save(out)
    write_atomically(out / FILE, json.dumps(card, indent=1).encode())
    return card
