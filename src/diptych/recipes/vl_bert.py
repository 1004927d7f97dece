"""VL-BERT (Su et al., ICLR 2020, arXiv 1908.08530): its recipes.

Section 4 (v1): Conceptual Captions, 256 pairs a batch, Adam, rate 1e-4, 8,000 steps of warm-up and linear decay, weight
decay 1e-4, 10 epochs on 16 V100; VQA 20 epochs at rate 1e-4, warm-up 2,000. `official` is the released code: no
relation, 80/10/10, soft region labels, centre and size, text and regions in 64 places, rates times the batch
(docs/fidelity.md).
The small size is for data such as Storybook: minutes on two cores.
"""

from __future__ import annotations

from typing import Literal

from diptych.models.vl_bert import VLBertShape
from diptych.recipes.objectives import Answering, Objectives, Retrieving, VLBertObjectives
from diptych.recipes.recipe import Recipe
from diptych.training.config import OptimizerConfig, TrainingConfig

Task = Literal["pretrain", "vqa", "retrieval"]
TASKS: tuple[Task, ...] = ("pretrain", "vqa", "retrieval")
PUBLISHED: tuple[Task, ...] = ("pretrain", "vqa")

_STEPS = {"pretrain": 129_000, "vqa": 52_000}  # 10 and 20 epochs over the sizes of the sets, by 256
_WARMUP = {"pretrain": 8000, "vqa": 2000}
_OFFICIAL_RATES = {"pretrain": 1e-7, "vqa": 6.25e-7}  # of one sample
_OFFICIAL_WARMUP = {"pretrain": 8000, "vqa": 500}
_OBJECTIVES: dict[Task, Objectives] = {
    "pretrain": VLBertObjectives(),
    "vqa": Answering(form="softmax"),
    "retrieval": Retrieving(),
}


def paper(task: Task) -> Recipe:
    """v1's own sizes and numbers."""
    return Recipe(
        name=f"vl-bert/{task}",
        system="vl-bert",
        task=task,
        model=VLBertShape.base(),
        objectives=_OBJECTIVES[task],
        optimizer=OptimizerConfig(kind="adam", lr=1e-4, weight_decay=1e-4, warmup_steps=_WARMUP[task]),
        training=TrainingConfig(steps=_STEPS[task], batch=256, micro_batch=64, precision="bf16", validate_every=5000),
    )


def official(task: Task) -> Recipe:
    """As the released code does it, where that differs (docs/fidelity.md)."""
    pretraining = VLBertObjectives(relation=0.0, masking="official", region_labels="soft", label_sum_within=0.1)
    return paper(task).model_copy(
        update={
            "name": f"vl-bert/official/{task}",
            "model": VLBertShape.base(geometry="official", visual_norm_init="official", region_budget="official"),
            "objectives": pretraining if task == "pretrain" else Answering(form="binary"),
            "optimizer": OptimizerConfig(
                kind="adamw",
                lr=_OFFICIAL_RATES[task],
                lr_times_batch=True,
                eps=1e-6,
                weight_decay=1e-4,
                decay_biases_and_norms=True,
                clip=10.0 if task == "pretrain" else 1.0,
                warmup_steps=_OFFICIAL_WARMUP[task],
            ),
        }
    )


def with_text(size: Literal["iclr", "official", "small"]) -> Recipe:
    """Half of each batch is text without pictures (ICLR version, section 3.3; the code: warm-up 16,000 steps).

    `--set data.text=FILE` names it, a sentence a line: BooksCorpus and Wikipedia there.
    """
    recipe = {"iclr": paper, "official": official, "small": small}[size]("pretrain")
    assert isinstance(recipe.objectives, VLBertObjectives)
    optimizer = recipe.optimizer
    if size == "official":
        optimizer = optimizer.model_copy(update={"warmup_steps": 16_000})
    return recipe.model_copy(
        update={
            "name": f"vl-bert/{size}/text-too",
            "objectives": recipe.objectives.model_copy(update={"relation": 0.0, "text_alone": 1.0}),
            "optimizer": optimizer,
        }
    )


def end_to_end(size: Literal["official", "small"]) -> Recipe:
    """Pre-training from pixels: Fast R-CNN learns too, as a group of its own (optimizer.groups).

    official: ResNet-101 with its stem, stage 1 and batch norms frozen, 64 pairs of 600 x 1000 pixels a step (here
    pieces of 4), text without pictures not among them; the code begins from a detector of Visual Genome. small: a
    ResNet-18 that begins from nothing, so that no stage is frozen, on pictures of 128 pixels.
    """
    recipe = {"official": official, "small": small}[size]("pretrain")
    network = {"network": "resnet101"} if size == "official" else {"network": "resnet18", "network_frozen": 0}
    read = {"pixels_colours": "bgr"} if size == "official" else {"pixels_shorter": 128, "pixels_longer": 192}
    batch = {"batch": 64, "micro_batch": 4} if size == "official" else {"batch": 16}
    return recipe.model_copy(
        update={
            "name": f"vl-bert/{size}/end-to-end",
            "model": recipe.model.model_copy(update=network),
            "data": recipe.data.model_copy(update=read),
            "optimizer": recipe.optimizer.model_copy(update={"groups": {"regions.network.": 1.0}}),
            "training": recipe.training.model_copy(update=batch),
        }
    )


def small(task: Task) -> Recipe:
    """For small worlds and one core; soft labels, and no relation in pre-training, as the ICLR version has it."""
    own = VLBertObjectives(relation=0.0, region_labels="soft")
    return Recipe(
        name=f"vl-bert/small/{task}",
        system="vl-bert",
        task=task,
        model=VLBertShape.tiny(whole="given"),
        objectives=own if task == "pretrain" else _OBJECTIVES[task],
        optimizer=OptimizerConfig(
            kind="adamw", lr=1e-3, weight_decay=0.01, betas=(0.9, 0.98), clip=1.0, schedule="linear", warmup_share=0.05
        ),
        training=TrainingConfig(
            steps=1200,
            batch=16 if task == "retrieval" else 64,
            precision="bf16",
            validate_every=200,
            checkpoint_every=200,
        ),
    )


def large(task: Task) -> Recipe:
    """24 layers, 1,024 wide (ICLR version)."""
    return paper(task).model_copy(update={"name": f"vl-bert/large/{task}", "model": VLBertShape.large()})
