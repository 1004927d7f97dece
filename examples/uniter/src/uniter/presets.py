"""UNITER's recipes: the released code's numbers (config/*.json), and a small one for worlds such as Storybook.

The code counts a batch in tokens; batches here are that number over about 50 words and regions of a pair.
"""

from __future__ import annotations

from diptych.plugin import OBJECTIVES, preset
from uniter.model import UniterConfig
from uniter.objectives import UniterObjectives

PRETRAIN = preset(
    "uniter/pretrain",
    "The code's pre-training of the base model on COCO, Visual Genome, Conceptual Captions and SBU.",
    system="uniter",
    task="pretrain",
    model=UniterConfig.base(),
    init="paper: BERT base",
    objectives=UniterObjectives(),
    optimizer={
        "kind": "adamw",
        "lr": 5e-5,
        "betas": (0.9, 0.98),
        "weight_decay": 0.01,
        "clip": 5.0,
        "warmup_steps": 10_000,
    },
    training={"steps": 200_000, "batch": 9800, "micro_batch": 64, "validate_every": 5000},
    data={"max_words": 60, "lowercase": False},
)

RECIPES = (
    PRETRAIN,
    PRETRAIN.but(
        "uniter/vqa",
        "The code's VQA 2.0, of train and val.",
        task="vqa",
        init=None,
        objectives=OBJECTIVES["vqa"](),
        optimizer={"lr": 8e-5, "clip": 2.0, "warmup_steps": 600, "lr_multipliers": {"heads.answer": 10.0}},
        training={"steps": 6000, "batch": 2048, "validate_every": 500},
        data={"split": "train+val", "answers_most": 3129},
    ),
    PRETRAIN.but(
        "uniter/entailment",
        "The code's SNLI-VE.",
        task="entailment",
        init=None,
        objectives=OBJECTIVES["entailment"](),
        optimizer={"lr": 8e-5, "clip": 2.0, "warmup_steps": 400},
        training={"steps": 4000, "batch": 650, "validate_every": 500},
    ),
    PRETRAIN.but(
        "uniter/nlvr",
        "The code's NLVR2, in its paired form: left and right picture are read apart, and both judged.",
        task="nlvr",
        init=None,
        model={"pictures": 2},
        objectives=OBJECTIVES["nlvr"](),
        optimizer={"lr": 3e-5, "clip": 2.0, "warmup_steps": 800},
        training={"steps": 8000, "batch": 100, "validate_every": 500},
    ),
    # Each pair against one with another picture and one with another caption (model/itm.py, data/itm.py).
    PRETRAIN.but(
        "uniter/retrieval",
        "The code's retrieval on Flickr30k, without its mining of hard negatives.",
        task="retrieval",
        init=None,
        objectives=OBJECTIVES["retrieval"](binary=0.0, triplet=1.0, pairs=3, margin=0.2),
        optimizer={"lr": 5e-5, "clip": 2.0, "warmup_steps": 2000},
        training={"steps": 20_000, "batch": 1280, "validate_every": 500},
    ),
    preset(
        "uniter/small/pretrain",  # what uniter/small/TASK is made of, for every task that it can learn
        "Pre-training for small worlds and one core.",
        system="uniter",
        task="pretrain",
        model=UniterConfig.tiny(),
        objectives=UniterObjectives(),
        optimizer={
            "kind": "muon",
            "muon_params": ("encoder.layers.",),
            "lr": 2e-3,
            "weight_decay": 0.01,
            "betas": (0.9, 0.98),
            "clip": 1.0,
            "schedule": "linear",
            "warmup_share": 0.05,
        },
        training={"steps": 2400, "batch": 64, "validate_every": 200, "checkpoint_every": 200},
    ),
)
