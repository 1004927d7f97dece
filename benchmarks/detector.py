"""Measure the Storybook detector: its training speed, its precision, and its time per image.

    uv run python -m benchmarks.detector [--threads 2]

Trains as `diptych storybook detector` does, on scenes drawn during training. Then detects on 500 test scenes with one
thread. Two upper limits of the training speed are measured on one thread: drawing alone, and the network alone on
scenes drawn before. Writes benchmarks/results/detector.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.detection_scores import detection_scores
from benchmarks.machine import save_result
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.selection import Selection
from diptych_world.demo.detector import DetectorRecipe, SceneBatches, drawn, storybook_shape, train_detector, truth
from diptych_world.detector.network import SmallDetector
from diptych_world.detector.training import Detection
from diptych_world.layout import scene

TEST = 500
EVERY = Selection(most=100, score=0.01, overlap=0.6)  # keeps low scores, because mAP ranks all detections


def limits(recipe: DetectorRecipe, steps: int = 20) -> dict[str, float]:
    """Return scenes per second of drawing alone and of the network alone."""
    batches = SceneBatches(storybook_shape(), recipe)
    began = time.perf_counter()
    made = [batches.at(step, 0, 1) for step in range(steps)]
    drawing = time.perf_counter() - began
    network, update = SmallDetector(storybook_shape()), Detection()
    optimizer = torch.optim.AdamW(network.parameters(), foreach=True)

    def run() -> None:
        for batch in made:
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.training.precision == "bf16"):
                losses = next(update.losses(network, batch))
            sum(losses.values(), torch.zeros(())).backward()
            optimizer.step()
            optimizer.zero_grad()

    run()
    began = time.perf_counter()
    run()
    scenes = steps * recipe.training.batch
    return {"drawing alone": scenes / drawing, "network alone": scenes / (time.perf_counter() - began)}


def looking(detector: Detector) -> tuple[dict[str, float], float]:
    """Return mAP on test scenes, and seconds per image in batches of 16."""
    scenes = [scene(0, "test", index) for index in range(TEST)]
    records, pictures = [truth(s) for s in scenes], [drawn(s) for s in scenes]
    detector.detect(pictures[:16], records[:16])
    began = time.perf_counter()
    seen = [r for i in range(0, TEST, 16) for r in detector.detect(pictures[i : i + 16], records[i : i + 16])]
    seconds = (time.perf_counter() - began) / TEST
    return detection_scores(seen, records, detector.contract.class_names), seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, help="default: the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep the run")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    recipe = DetectorRecipe.of(chosen.steps, chosen.seed)
    training = recipe.training
    with tempfile.TemporaryDirectory() as folder:
        out = chosen.out or Path(folder)
        began, busy = time.perf_counter(), time.process_time()
        train_detector(recipe, out)
        wall, cpu = time.perf_counter() - began, time.process_time() - busy
        detector = load_detector(out / "detector", EVERY)
    torch.set_num_threads(1)
    scores, seconds = looking(detector)
    results = {
        "threads": chosen.threads,
        "steps": training.steps,
        "batch": training.batch,
        "training_seconds": round(wall, 1),
        "training_cpu_seconds": round(cpu, 1),
        "scenes_per_second": {
            name: round(rate, 1)
            for name, rate in {"training": training.steps * training.batch / wall, **limits(recipe)}.items()
        },
        "milliseconds_per_picture": round(1000 * seconds, 2),
        "test_scenes": TEST,
        **{name: round(score, 1) for name, score in scores.items()},
    }
    print(save_result("detector", "uv run python -m benchmarks.detector", results))
    print(results)


if __name__ == "__main__":
    main()
