"""What the small recipes of all systems share: for worlds such as Storybook, minutes on two cores."""

from __future__ import annotations

from diptych.runtime.configs import derive
from diptych.training.config import OptimizerConfig, TrainingConfig

ADAMW = OptimizerConfig(
    kind="adamw", lr=1e-3, weight_decay=0.01, betas=(0.9, 0.98), clip=1.0, schedule="linear", warmup_share=0.05
)
TRAINING = TrainingConfig(steps=1200, batch=64, validate_every=200, checkpoint_every=200)
PAIRS = derive(TRAINING, batch=16)  # a pair comes with its wrong ones


# Dropout of 0.1 is what holds networks of this width back: without it questions are learnt in half of the steps, and
# pre-training reads words better at the same step (docs/log.md).
NO_DROPOUT: dict[str, float] = {"dropout": 0.0, "attention_dropout": 0.0}


def muon(*stacks: str) -> OptimizerConfig:
    """For the layers of `stacks`: on Storybook it learns in half of AdamW's steps, and more (docs/log.md)."""
    return derive(ADAMW, kind="muon", muon_params=stacks, lr=2e-3)
