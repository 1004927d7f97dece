"""VL-BERT (Su et al., ICLR 2020, arXiv 1908.08530): its recipes.

Section 4 (v1): Conceptual Captions, 256 pairs a batch, Adam, rate 1e-4, 8,000 steps of warm-up and linear decay, weight
decay 1e-4, 10 epochs on 16 V100; VQA 20 epochs at rate 1e-4, warm-up 2,000; VCR 20 epochs of SGD at 2e-3, a tenth of
it from epochs 14 and 18 on; RefCOCO+ 20 epochs at 2e-4, warm-up 500. `official` is the released code: no relation,
80/10/10, soft region labels, centre and size, text and regions in 64 places in pre-training, rates times the batch,
half of the samples mirrored (docs/fidelity.md).
v1 trains Fast R-CNN with the rest "in both pre-training and fine-tuning phase" (Figure 1), so all of its recipes read
pixels, in boxes of a detector of Visual Genome, or in VCR and RefCOCO+ in the objects' own (`diptych extract DATA STORE
--detector ground-truth`). The code does so on VCR and RefCOCO+ and in `official/end-to-end`. Started from a model on
stored features all stay on those:

    diptych import vl-bert vl-bert-base-e2e.model imported --vocab vocab.txt
    diptych finetune vcr --recipe vl-bert/official/vcr --data STORE --model imported --out runs/vcr
The small size is for data such as Storybook: minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from diptych.models.system import NETWORK
from diptych.runtime.configs import derive
from diptych.systems.objectives import (
    Objectives,
    ReferringObjectives,
    RetrievalObjectives,
    VcrObjectives,
    VqaObjectives,
)
from diptych.systems.presets import decisions
from diptych.systems.presets.small import NO_DROPOUT, PAIRS, TRAINING, muon
from diptych.systems.presets.vqa2 import AND_VAL, VQA2
from diptych.systems.recipe import DataConfig, Recipe
from diptych.systems.vl_bert.model import VLBertConfig
from diptych.systems.vl_bert.objectives import VLBertObjectives
from diptych.training.config import OptimizerConfig, TrainingConfig

Task = Literal["pretrain", "vqa", "retrieval", "vcr", "referring"]
TASKS: tuple[Task, ...] = ("pretrain", "vqa", "retrieval")  # of `small`; the others are in deciding.py
PUBLISHED: tuple[Task, ...] = ("pretrain", "vqa", "vcr", "referring")

# 10 epochs, then 20 each, over the sizes of the sets: 3.3 M captions, 444 k questions, 426 k of VCR (one model answers
# and gives reasons; the authors train two), 120 k expressions.
_STEPS = {"pretrain": 129_000, "vqa": 34_700, "vcr": 133_000, "referring": 9400}
_BATCHES = {"vcr": 64}  # questions of four texts: 256 of the paper's triplets
_RATES = {"vcr": 2e-3, "referring": 2e-4}
_WARMUP = {"pretrain": 8000, "vqa": 2000, "vcr": 1000, "referring": 500}
_OFFICIAL_BATCHES = {"vcr": 64, "referring": 32}
_OFFICIAL_STEPS = {"vqa": 13_000, "referring": 75_000}  # VQA: 5 epochs of train and val (cfgs/vqa)
_OFFICIAL_RATES = {"pretrain": 1e-7, "vqa": 6.25e-7, "vcr": 7e-5, "referring": 8e-7}  # of one sample
_OFFICIAL_WARMUP = {"pretrain": 8000, "vqa": 500, "vcr": 1000, "referring": 3750}
_OFFICIAL_CLIP = {"pretrain": 10.0, "vcr": 10.0}
_OFFICIAL_OBJECTIVES: dict[str, Any] = {
    "relation": 0.0,
    "masking": "official",
    "region_hidden": 0.9,
    "region_labels": "soft",
    "label_sum_within": 0.1,
}
_OFFICIAL_INPUT = {"hidden_regions": "official", "end_visual": "official"}
_OFFICIAL_SHAPE = {"geometry": "official", "visual_norm_init": "official", **_OFFICIAL_INPUT}
_OBJECTIVES: dict[Task, Objectives] = {
    "pretrain": VLBertObjectives(),
    "vqa": VqaObjectives(form="softmax"),
    "retrieval": RetrievalObjectives(),
    "vcr": VcrObjectives(region_classes="masked"),
    "referring": ReferringObjectives(),
}
_CODE_READS_PIXELS: tuple[Task, ...] = ("vcr", "referring")  # features elsewhere
# Times the rate, of the network that reads pixels: the code's configurations change it nowhere.
_OWN_GROUP = {NETWORK: 1.0}


def paper(task: Task) -> Recipe:
    """v1's own sizes and numbers."""
    optimizer = OptimizerConfig(kind="adam", lr=_RATES.get(task, 1e-4), weight_decay=1e-4, warmup_steps=_WARMUP[task])
    if task == "vcr":
        optimizer = _steps_down(optimizer, _STEPS[task])
    return Recipe(
        name=f"vl-bert/{task}",
        system="vl-bert",
        task=task,
        model=VLBertConfig.base(network="resnet101"),
        init="paper: BERT base",  # section 4.1
        objectives=_OBJECTIVES[task],
        optimizer=derive(optimizer, lr_multipliers=_OWN_GROUP),
        training=TrainingConfig(
            steps=_STEPS[task],
            batch=_BATCHES.get(task, 256),
            micro_batch=4,
            validate_every=5000,
        ),
        data=_reading(task),
    )


def _steps_down(optimizer: OptimizerConfig, steps: int) -> OptimizerConfig:
    """Plain gradient descent with momentum 0.9; a tenth of the rate from epochs 14 and 18 of 20 on."""
    falls = (14 * steps // 20, 18 * steps // 20)
    return derive(optimizer, kind="sgd", momentum=0.9, schedule="step", milestones=falls)


def _reading(task: Task) -> DataConfig:
    """VCR: both sentences within 64 pieces (vcr.py), pictures of 600 x 1,200 pixels; else of 600 x 1,000."""
    if task == "vcr":
        return DataConfig(pixels_colours="bgr", max_words=64, pixels_longer=1200)
    return derive(VQA2 if task == "vqa" else DataConfig(), pixels_colours="bgr")


def official(task: Task) -> Recipe:
    """As the released code does it, where that differs (docs/fidelity.md)."""
    objectives: dict[Task, Objectives] = {
        **_OBJECTIVES,
        "pretrain": VLBertObjectives(**_OFFICIAL_OBJECTIVES),
        "vqa": VqaObjectives(form="binary"),
        "vcr": VcrObjectives(vcr_loss="sigmoid", region_classes="every"),
    }
    recipe, pixels = paper(task), task in _CODE_READS_PIXELS
    steps, batch = _OFFICIAL_STEPS.get(task, recipe.training.steps), _OFFICIAL_BATCHES.get(task, 256)
    optimizer = OptimizerConfig(
        kind="adamw",
        lr=_OFFICIAL_RATES[task],
        lr_times_batch=True,
        eps=1e-6,
        weight_decay=1e-4,
        decay_biases_and_norms=True,
        clip=_OFFICIAL_CLIP.get(task, 1.0),
        lr_multipliers=_OWN_GROUP if pixels else {},
        warmup_steps=_OFFICIAL_WARMUP[task],
    )
    data: dict[str, Any] = {"mirror": 0.5, **(AND_VAL if task == "vqa" else {})}
    model: dict[str, Any] = {**_OFFICIAL_SHAPE, **({} if pixels else {"network": None})}
    if task == "pretrain":  # a caption is cut where there are as many boxes, 32 and 32 (conceptual_captions.py)
        data["max_words"], model["region_budget"] = 30, "official"
    validate = {"validate_every": None} if task == "vqa" else {}
    return derive(
        recipe,
        name=f"vl-bert/official/{task}",
        model=model,
        objectives=objectives[task],
        optimizer=_steps_down(optimizer, steps) if task == "vcr" else optimizer,
        training={"steps": steps, "batch": batch, "micro_batch": 4 if pixels else 64, **validate},
        data=data,
    )


def with_text(size: Literal["iclr", "official", "small"]) -> Recipe:
    """Half of each batch is text without pictures (ICLR version, section 3.3; the code: warm-up 16,000 steps).

    `--set data.text=FILE` names it, a sentence a line: BooksCorpus and Wikipedia there. Of 256 samples 128 are then
    pairs (the code: 4 times 32 and 32), so that their 10 epochs take twice the steps.
    """
    recipe = {"iclr": paper, "official": official, "small": small}[size]("pretrain")
    return derive(
        recipe,
        name=f"vl-bert/{size}/text-too",
        objectives={"relation": 0.0, "text_alone": 1.0},
        optimizer={"warmup_steps": 16_000} if size == "official" else {},
        training={} if size == "small" else {"steps": 2 * recipe.training.steps},
    )


def end_to_end(size: Literal["official", "small"]) -> Recipe:
    """Pre-training from pixels: Fast R-CNN learns too, as a group of its own (optimizer.lr_multipliers).

    official: ResNet-101 with its stem, stage 1 and batch norms frozen, 256 pairs of 600 x 1000 pixels a step (here
    pieces of 4), where half of the code's are text without pictures (`official/text-too` has its keys); the code begins
    from a detector of Visual Genome (`network_init`). small: a ResNet-18 that begins from nothing, so that no stage is
    frozen, on pictures of 128 pixels, 4 x 4 cells of a box; classes are told from pixels too, from which the network
    learns soonest (docs/log.md).
    """
    recipe = {"official": official, "small": small}[size]("pretrain")
    from_nothing = {"network": "resnet18", "network_frozen": 0, "network_cells": 4}
    network = {"network": "resnet101"} if size == "official" else from_nothing
    read = {} if size == "official" else {"pixels_shorter": 128, "pixels_longer": 192}
    batch = {"micro_batch": 4} if size == "official" else {"batch": 16}
    return derive(
        recipe,
        name=f"vl-bert/{size}/end-to-end",
        model=network,
        data=read,
        objectives={"seen_classes": 1.0 if size == "small" else 0.0},
        optimizer={"lr_multipliers": _OWN_GROUP},
        training=batch,
    )


def small(task: Task) -> Recipe:
    """For small worlds and one core; soft labels, and no relation in pre-training, as the ICLR version has it.

    The visual norms begin at 0, as in the code: at 1, beside words that no BERT has learnt, the picture's feature
    drowns them, and masked words stay where words alone leave them (docs/log.md).
    """
    own = VLBertObjectives(relation=0.0, region_labels="soft", region_hidden=0.9)
    return Recipe(
        name=f"vl-bert/small/{task}",
        system="vl-bert",
        task=task,
        model=VLBertConfig.tiny(whole="given", visual_norm_init="official", **_OFFICIAL_INPUT, **NO_DROPOUT),
        objectives=own if task == "pretrain" else _OBJECTIVES[task],
        optimizer=muon("encoder.layers."),
        training=PAIRS if task == "retrieval" else TRAINING,
    )


def large(task: Task) -> Recipe:
    """24 layers, 1,024 wide (ICLR version)."""
    recipe = paper(task)
    model = VLBertConfig.large(network="resnet101")
    return derive(recipe, name=f"vl-bert/large/{task}", model=model, init="paper: BERT large")


MAKERS: list[Callable[[], Recipe]] = [
    *(partial(make, task) for make in (paper, official, large) for task in PUBLISHED),
    *(partial(small, task) for task in TASKS),
    *(partial(with_text, size) for size in ("iclr", "official", "small")),
    *(partial(end_to_end, size) for size in ("official", "small")),
    *(partial(decisions.small, small, task) for task in decisions.TASKS),
]
