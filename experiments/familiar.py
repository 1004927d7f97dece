"""Measure how many images a model reports as unlike its training images: photographs, noise, plain colours, new scenes.

    uv run python -m experiments.familiar MODEL ONE OTHER

ONE and OTHER are folders of photographs from two sources, at least 200 each. The threshold is a quantile of the
training images (`diptych.runs.familiarity.QUANTILE`), chosen for less than 1% false alarms. How familiarity is measured
was chosen on ONE, among mean score, highest score, distance and sums of these. OTHER, noise, plain colours and new
scenes only test the choice. New scenes are drawn with seeds that no training used. Writes
experiments/results/familiar.json: percentages with 95% intervals (Wilson).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.machine import Figure
from diptych.api.model import load
from diptych.inference.predictor import Predictor
from diptych.runs.familiarity import QUANTILE
from diptych.vision.detectors.detector import Picture
from diptych.vision.pictures import open_picture
from diptych_world.layout import scene
from diptych_world.render import render
from experiments.figures import save

SCENES, OTHERS, SEED = 600, 200, 977


def share(unfamiliar: int, count: int) -> Figure:
    """Return `unfamiliar` as a percentage of `count`, with its Wilson interval."""
    z, p = 1.96, unfamiliar / count
    middle, scale = p + z * z / (2 * count), 1 + z * z / count
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return {"value": round(100 * p, 1), "low": round(100 * (middle - half) / scale, 1),
            "high": round(100 * (middle + half) / scale, 1)}  # fmt: skip


def drawn(change: Callable[[Picture], Picture] = lambda picture: picture) -> Iterator[Picture]:
    for number in range(SCENES):
        yield change(torch.from_numpy(render(scene(SEED, "test", number))).permute(2, 0, 1))


def noise() -> Iterator[Picture]:
    chance = torch.Generator().manual_seed(0)
    for _ in range(OTHERS):
        yield torch.randint(0, 256, (3, 160, 160), generator=chance, dtype=torch.uint8)


def plain() -> Iterator[Picture]:
    chance = torch.Generator().manual_seed(1)
    for _ in range(OTHERS):
        yield torch.randint(0, 256, (3, 1, 1), generator=chance, dtype=torch.uint8).expand(3, 160, 160).contiguous()


def photographs(folder: Path) -> Iterator[Picture]:
    return (open_picture(path) for path in sorted(folder.rglob("*.jpg")))


def measure(model: Predictor, pictures: Iterator[Picture]) -> tuple[Figure, int]:
    known = [model.is_familiar(model.extract([picture])[0]) for picture in pictures]
    if None in known:
        raise SystemExit("MODEL has no threshold of familiarity; pass a model that was trained on at least 300 images")
    return share(known.count(False), len(known)), len(known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "one", "other"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    model = load(given.model).predictor
    sets = {
        "photographs of one source": photographs(given.one),
        "photographs of another source": photographs(given.other),
        "noise": noise(),
        "plain colours": plain(),
        "fresh drawn scenes (false alarms)": drawn(),
        "fresh drawn scenes, mirrored": drawn(lambda picture: picture.flip(2)),
        "fresh drawn scenes, half as bright": drawn(lambda picture: picture // 2),
    }
    figures, images = {}, {}
    for name, pictures in sets.items():
        figures[name], images[name] = measure(model, pictures)
        print(name, figures[name], flush=True)
    command = "uv run python -m experiments.familiar MODEL PHOTOGRAPHS OTHER_PHOTOGRAPHS"
    save("familiar", command, {"quantile": QUANTILE, "taken for unlike training": figures, "images": images})


if __name__ == "__main__":
    main()
