"""UNITER's recipes: the released code's numbers (config/*.json), and small ones for worlds such as Storybook.

The code counts a batch in tokens; batches here are that number over about 50 words and regions of a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from diptych.runtime.configs import derive
from diptych.systems.objectives import NlvrObjectives, RetrievalObjectives, VqaObjectives
from diptych.systems.presets.small import PAIRS, TRAINING, muon
from diptych.systems.recipe import DataConfig, Recipe
from diptych.training.config import OptimizerConfig, TrainingConfig
from uniter.model import UniterConfig
from uniter.objectives import UniterObjectives

# Each pair against one with another picture and one with another caption (model/itm.py, data/itm.py).
TRIPLET = RetrievalObjectives(binary=0.0, triplet=1.0, pairs=3, margin=0.2)


def pretrain() -> Recipe:
    """The code's pre-training of the base model on COCO, Visual Genome, Conceptual Captions and SBU."""
    return Recipe(
        name="uniter/pretrain",
        system="uniter",
        task="pretrain",
        model=UniterConfig.base(),
        init="paper: BERT base",
        objectives=UniterObjectives(),
        optimizer=OptimizerConfig(
            kind="adamw", lr=5e-5, betas=(0.9, 0.98), weight_decay=0.01, clip=5.0, warmup_steps=10_000
        ),
        training=TrainingConfig(steps=200_000, batch=9800, micro_batch=64, validate_every=5000),
        data=DataConfig(max_words=60, lowercase=False),
    )


def tuned(task: str, lr: float, steps: int, batch: int, objectives: Any, **changes: Any) -> Recipe:
    return derive(
        pretrain(),
        name=f"uniter/{task}",
        task=task,
        init=None,
        objectives=objectives,
        optimizer={"lr": lr, "clip": 2.0, "warmup_steps": steps // 10, **changes.pop("optimizer", {})},
        training={"steps": steps, "batch": batch, "validate_every": 500},
        **changes,
    )


def vqa() -> Recipe:
    """The code's VQA 2.0, of train and val."""
    data = {"split": "train+val", "answers_most": 3129}
    return tuned(
        "vqa", 8e-5, 6000, 2048, VqaObjectives(), data=data, optimizer={"lr_multipliers": {"heads.answer": 10.0}}
    )


def nlvr() -> Recipe:
    """The code's NLVR2, in its paired form: left and right picture are read apart, and both judged."""
    return tuned("nlvr", 3e-5, 8000, 100, NlvrObjectives(), model={"pictures": 2})


def retrieval() -> Recipe:
    """The code's retrieval on Flickr30k, without its mining of hard negatives."""
    return tuned("retrieval", 5e-5, 20_000, 1280, TRIPLET)


def small() -> Recipe:
    """Pre-training for small worlds and one core."""
    return Recipe(
        name="uniter/small/pretrain",
        system="uniter",
        task="pretrain",
        model=UniterConfig.tiny(),
        objectives=UniterObjectives(),
        optimizer=muon("encoder.layers."),
        training=derive(TRAINING, steps=2400),
    )


def small_task(task: str, objectives: Any, max_words: int = 20) -> Recipe:
    """A task for small worlds and one core."""
    training = PAIRS if task == "retrieval" else TRAINING
    changes = {"objectives": objectives, "training": training, "data": {"max_words": max_words}}
    return derive(small(), name=f"uniter/small/{task}", task=task, **changes)


MAKERS: list[Callable[[], Recipe]] = [
    pretrain,
    vqa,
    nlvr,
    retrieval,
    small,
    partial(small_task, "vqa", VqaObjectives(form="softmax")),
    partial(small_task, "nlvr", NlvrObjectives(), 24),
    partial(small_task, "retrieval", RetrievalObjectives()),
]
