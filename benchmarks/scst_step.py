"""Measure how the time of a self-critical training step divides into sampling, reward, and the forward and backward
pass.

    uv run python -m benchmarks.scst_step

There are two Unified VLP models, 128 wide (the small recipe) and 256 wide. A step has 64 drawn scenes with five
references each, and samples five captions per scene. Document frequencies come from 1,000 images. The models are not
trained, so captions are random, long and all different: the slowest case for the reward.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import save_result
from diptych.core import Batch, collate
from diptych.data.store.tokens import Tokens
from diptych.models.decoding import DecodingOptions
from diptych.objectives import SelfCritical
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPConfig, UnifiedVLPResolvedConfig
from diptych.tasks.caption import Captioning
from diptych.tasks.rewards import FREQUENCIES, CorpusCider
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych_world.book import record
from diptych_world.layout import scene

PICTURES, BATCH, SAMPLES, WORDS = 1000, 64, 5, 20


def made(folder: Path) -> tuple[Batch, CorpusCider, Tokens]:
    records = [record(scene(0, "train", index)) for index in range(PICTURES)]
    tokens = Tokens.train([caption for one in records for caption in one.captions], 8000)
    detector = GroundTruth.of(records)
    regions = detector.detect([], records[:BATCH])
    task = Captioning(tokens, DecodingOptions())
    samples = [
        sample
        for one, seen in zip(records, regions, strict=False)
        for sample in task.queries(replace(one, regions=seen.first(32)))
    ]
    references = {one.key: one.captions for one in records}
    return collate(samples), CorpusCider(tokens, references, True, folder / FREQUENCIES), tokens


def timed(work: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        began = time.perf_counter()
        done = work(*given)
        spent.append(time.perf_counter() - began)
        return done

    return call


class Timed:
    """A reward that measures the seconds it takes."""

    def __init__(self, reward: CorpusCider) -> None:
        self.reward, self.seconds = reward, list[float]()

    def __call__(self, batch: Batch, captions: Any) -> torch.Tensor:
        found: torch.Tensor = timed(self.reward, self.seconds)(batch, captions)
        return found

    def spell(self, caption: list[int]) -> str:
        return self.reward.spell(caption)


def measure(width: int, rounds: int, folder: Path) -> dict[str, Any]:
    batch, reward, tokens = made(folder)
    assert batch.features is not None
    assert batch.classes is not None
    shape = UnifiedVLPConfig.tiny(width=width, ffn=4 * width)
    config = UnifiedVLPResolvedConfig(
        **shape.model_dump(), vocabulary=tokens.vocabulary, feature_size=batch.features.shape[-1],
        classes=batch.classes.shape[-1],
    )  # fmt: skip
    torch.manual_seed(0)
    model = UnifiedVLP(config).train()
    judge, drawing, steps = Timed(reward), list[float](), list[float]()
    objectives = SelfCriticalObjectives(writes="queries", baseline="mean", samples=SAMPLES)
    update = objectives.rewarded(tokens.vocabulary, judge, WORDS).at(0)
    assert isinstance(update, SelfCritical)
    update = replace(update, draw=timed(update.draw, drawing))
    step = timed(partial(one_step, model, update, batch), steps)
    for _ in range(rounds + 1):
        step()
    whole, judging, draws = (statistics.median(times[1:]) for times in (steps, judge.seconds, drawing))
    return {
        "width": width,
        "captions_a_step": BATCH * SAMPLES,
        "milliseconds_a_step": round(1000 * whole, 1),
        "percent: drawing": round(100 * draws / whole, 1),
        "percent: reward": round(100 * judging / whole, 1),
        "percent: writing again, forward and back": round(100 * (whole - draws - judging) / whole, 1),
    }


def one_step(model: UnifiedVLP, update: SelfCritical, batch: Batch) -> None:
    for losses in update.losses(model, batch):
        (losses["self_critical"] / len(batch)).backward()
    model.zero_grad(set_to_none=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures = {f"{width} wide": measure(width, rounds, Path(folder)) for width in (128, 256)}
    save_result("scst_step", "uv run python -m benchmarks.scst_step", figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
