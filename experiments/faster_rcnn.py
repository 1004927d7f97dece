"""Train torchvision's Faster R-CNN briefly on Storybook, and a captioner on its regions.

    uv run diptych storybook detector --out RUN --faster-rcnn resnet18_fpn
    uv run python -m experiments.faster_rcnn RUN

The first command takes about 15 minutes on two cores. The second takes a few minutes: it computes mAP on 200 new
scenes, extracts the regions of 700 scenes, and trains a small captioner from scratch on 400 of them. The captioner's
scores are listed with the blind baseline, and with the ceiling: one caption of a scene scored against the other four.
Writes experiments/results/faster_rcnn.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.detection_scores import detection_scores
from diptych.data.extract.own_data import extract_regions
from diptych.data.formats.table import read
from diptych.data.store.store import Store, iterate
from diptych.runs.predict import predict
from diptych.runs.run import run
from diptych.systems import find_recipe
from diptych.tasks import CAPTION
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.selection import Selection
from diptych_world.demo.detector import drawn, truth
from diptych_world.files import write as write_world
from diptych_world.layout import scene
from experiments.figures import save
from experiments.thorough import baselines_of

SPLITS = {"train": 400, "val": 100, "test": 200}
EVERY = Selection(most=100, score=0.01)  # keeps low scores, because mAP ranks all detections
SCORES = ("CIDEr", "BLEU-4")
SETTINGS = (
    "model.width=128", "model.layers=3", "model.ffn=512", "optimizer.kind=adamw", "optimizer.lr=1e-3",
    "training.steps=400", "training.batch=32", "training.validate_every=100",
    "training.checkpoint_every=100",
)  # fmt: skip


def detected(detector: Detector) -> dict[str, float]:
    scenes = [scene(0, "test", index) for index in range(SPLITS["test"])]
    records, pictures = [truth(s) for s in scenes], [drawn(s) for s in scenes]
    seen = [r for i in range(0, len(scenes), 8) for r in detector.detect(pictures[i : i + 8], records[i : i + 8])]
    return {
        name: round(score, 1) for name, score in detection_scores(seen, records, detector.contract.class_names).items()
    }


def captioned(detector: Path, root: Path) -> dict[str, Any]:
    """Train the captioner on regions of `detector`. Return its CIDEr and BLEU-4 on test, with the blind baseline and
    the ceiling."""
    write_world(root / "world", SPLITS)
    began = time.perf_counter()
    extract_regions(read(root / "world"), load_detector(detector), root / "store")
    seconds = time.perf_counter() - began
    store = Store(root / "store")
    recipe = find_recipe("unified-vlp/small/caption").override(SETTINGS)
    made = run(recipe, store, root / "caption", console=Console(quiet=True))
    predicted = predict(made.model, store, "test")
    said, scores = predicted.predictions, predicted.scores
    test = [store.record(index) for index in store.split("test")]
    baselines = baselines_of("caption", CAPTION.by_key(said), test, list(iterate(store, "train")), SCORES)
    return {
        "pictures_per_second": round(sum(SPLITS.values()) / seconds, 1),
        "regions_per_picture": round(float(store.region_counts(range(len(store))).mean()), 1),
        "labelled_scenes": SPLITS["train"],
        "steps": made.result.step,
        **{name: {"value": round(scores[name], 1)} | _rounded(baselines[name]) for name in SCORES},
    }


def _rounded(values: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 1) for name, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    detector = parser.parse_args().run / "detector"
    torch.set_num_threads(1)
    figures: dict[str, Any] = {
        "architecture": load_detector(detector).contract.extractor,
        **detected(load_detector(detector, EVERY)),
    }
    with tempfile.TemporaryDirectory() as folder:
        figures["captions"] = captioned(detector, Path(folder))
    train = "uv run diptych storybook detector --out RUN --faster-rcnn resnet18_fpn"
    command = f"{train}; uv run python -m experiments.faster_rcnn RUN"
    print(save("faster_rcnn", command, figures))
    print(figures)


if __name__ == "__main__":
    main()
