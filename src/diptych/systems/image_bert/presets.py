"""ImageBERT (Qi et al. 2020, arXiv 2001.07966): its recipes.

Section 5: BERT base over 100 regions, 144 positions in all; pre-training with batch 48, Adam, rate 1e-4, 17 epochs on
4 V100; retrieval on Flickr30k and COCO with batch 24, rate 5e-5, 130 epochs. Warm-up and decay are not said: 10% and
linear, as in BERT. Steps are the epochs over the sizes of the sets: LAIT 2M (the part that was used), Conceptual
Captions 3M, SBU 1M. Expected on Flickr30k (R@1 of pictures, of captions): zero-shot 54.3, 70.7 after two stages
(Table 3), fine-tuned 73.1, 87.0 (Table 2); COCO 1k 73.6, 85.4.
The small size is for data such as Storybook: minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from diptych.runtime.configs import derive
from diptych.systems.image_bert.model import ImageBertConfig
from diptych.systems.image_bert.objectives import ImageBertObjectives
from diptych.systems.objectives import Objectives, RetrievalObjectives, VqaObjectives
from diptych.systems.presets import decisions
from diptych.systems.presets.photos import photos
from diptych.systems.presets.small import NO_DROPOUT, PAIRS, TRAINING, muon
from diptych.systems.recipe import DataConfig, Recipe
from diptych.systems.stages import Stages
from diptych.training.config import OptimizerConfig, TrainingConfig

Task = Literal["pretrain", "retrieval", "vqa"]
Size = Literal["paper", "small"]
TASKS: tuple[Task, ...] = ("pretrain", "retrieval", "vqa")
PHOTOS: tuple[Task, ...] = ("pretrain", "retrieval")  # recipes for photographs of one's own

_RATES = {"pretrain": 1e-4, "retrieval": 5e-5, "vqa": 5e-5}  # of VQA the paper says nothing
_BATCHES = {"pretrain": 48, "retrieval": 24, "vqa": 128}
_STEPS = {"pretrain": 1_417_000, "retrieval": 785_000, "vqa": 69_500}  # 17 epochs of CC and SBU; 130 of Flickr30k
_MAX_WORDS = 42  # 144 positions, 100 of them regions and two marks
_OBJECTIVES: dict[Task, Objectives] = {
    "pretrain": ImageBertObjectives(),
    "retrieval": RetrievalObjectives(),
    "vqa": VqaObjectives(),
}
_SMALL_OBJECTIVES: dict[Task, Objectives] = {
    "pretrain": ImageBertObjectives(wrong_pairs="instead"),
    "vqa": VqaObjectives(form="softmax"),
}
# Whether a pair belongs together is learnt last, when words have found their regions: from about step 1,400.
_SMALL_TRAINING = {"pretrain": derive(TRAINING, steps=2400), "retrieval": PAIRS}
LOSSES: dict[str, dict[str, Any]] = {  # Table 4, part 4
    "binary+choice+triplet": {"binary": 1.0, "choice": 1.0, "triplet": 1.0},
    "choice": {"binary": 0.0, "choice": 1.0},
    "triplet": {"binary": 0.0, "triplet": 1.0},
}


def paper(task: Task) -> Recipe:
    """The paper's own sizes and numbers."""
    return Recipe(
        name=f"image-bert/{task}",
        system="image-bert",
        task=task,
        model=ImageBertConfig.base(),
        init="paper: BERT base",  # section 5.1
        objectives=_OBJECTIVES[task],
        optimizer=OptimizerConfig(kind="adam", lr=_RATES[task], schedule="linear", warmup_share=0.1),
        training=TrainingConfig(steps=_STEPS[task], batch=_BATCHES[task], validate_every=5000, keep=2),
        data=DataConfig(max_words=_MAX_WORDS),
    )


def small(task: Task) -> Recipe:
    """For small worlds and one core; half of the pairs are wrong, and answers are learnt against each other."""
    return Recipe(
        name=f"image-bert/small/{task}",
        system="image-bert",
        task=task,
        model=ImageBertConfig.tiny(whole_region="given", answer_slot=True, **NO_DROPOUT),
        objectives=_SMALL_OBJECTIVES.get(task, _OBJECTIVES[task]),
        optimizer=muon("encoder.layers."),
        training=_SMALL_TRAINING.get(task, TRAINING),
    )


def with_losses(losses: str) -> Recipe:
    """Table 4, part 4: which losses are added up in fine-tuning; binary alone, the best, is `image-bert/retrieval`."""
    recipe = paper("retrieval")
    return derive(recipe, name=f"image-bert/retrieval/{losses}", objectives=LOSSES[losses])


def on_coco() -> Recipe:
    """Retrieval on COCO (Table 2): 130 epochs of its 566,747 captions."""
    return derive(paper("retrieval"), name="image-bert/retrieval/coco", training={"steps": 3_070_000})


def changed(name: str) -> Recipe:
    """Table 4, parts 1 to 3: the whole picture's feature beside CC+SBU, MRFR beside CC, 36 regions."""
    baseline, changes = CHANGES[name]
    return derive(baseline, name=f"image-bert/{name}", **changes)


# Table 3: on what is pre-trained, in one stage or two. Storybook's splits stand in for them at the small size: web for
# LAIT, which is much and noisy, train for the others; there all rows have all four tasks, and what is read in two
# stages is read as often as their union. MRFR was added later ("we also add", section 5.3): CC of Table 3
# (33.0/60.6/72.5 and 43.8/73.7/81.7) is CC without MRFR of Table 4, part 2, and CC+SBU the baseline of part 1, so
# neither has it. LAIT's rows are the stages of the model of Tables 1 and 2, whose "both stages" have "all of our four
# tasks" (section 4.2); LAIT+CC+SBU, of which nothing is said, has them as well, to differ in its stages alone.
ONE_STAGE: dict[Size, tuple[str, ...]] = {
    "paper": ("lait", "cc", "cc+sbu", "lait+cc+sbu"),
    "small": ("web", "train", "web+train"),
}
TWO_STAGES: dict[Size, tuple[str, str]] = {"paper": ("lait", "cc+sbu"), "small": ("web", "train")}
_WITHOUT_MRFR = ("cc", "cc+sbu")
_EPOCHS, _SIZES = 17, {"lait": 2_000_000, "cc": 3_000_000, "sbu": 1_000_000}  # of LAIT a fifth was used


def on(size: Size, split: str, name: str | None = None) -> Recipe:
    """Pre-training on one set, or on the union of several."""
    recipe = paper("pretrain") if size == "paper" else small("pretrain")
    sets = split.split("+")
    steps = recipe.training.steps * len(sets)
    if size == "paper":
        steps = _EPOCHS * sum(_SIZES[name] for name in sets) // recipe.training.batch
    alone = name is None and split in _WITHOUT_MRFR  # and not the second stage
    return derive(
        recipe,
        name=f"{recipe.name}/{name or split}",
        training={"steps": steps},
        data={"split": split},
        objectives={"region_features": 0.0} if alone else {},
    )


def two_stages(size: Size) -> Stages:
    """Table 3, last row, the paper's own: LAIT, then Conceptual Captions and SBU."""
    splits = TWO_STAGES[size]
    name = "-then-".join(splits)
    first, *later = (on(size, split, f"{name}/{number}") for number, split in enumerate(splits, start=1))
    recipes = (first, *(derive(recipe, init=None) for recipe in later))
    return Stages(recipes[0].name.removesuffix("/1"), recipes)


CHANGES: dict[str, tuple[Recipe, dict[str, Any]]] = {
    "pretrain/global": (on("paper", "cc+sbu"), {"model": {"whole_region": True}}),
    "pretrain/cc+mrfr": (on("paper", "cc"), {"objectives": {"region_features": 1.0}}),
    "retrieval/36-regions": (paper("retrieval"), {"model": {"max_regions": 36}}),
}

MAKERS: list[Callable[[], Recipe]] = [
    *(partial(make, task) for make in (paper, small) for task in TASKS),
    on_coco,
    *(partial(with_losses, losses) for losses in LOSSES),
    *(partial(changed, name) for name in CHANGES),
    *(partial(on, size, split) for size in ONE_STAGE for split in ONE_STAGE[size]),
    *(partial(decisions.small, small, task) for task in decisions.TASKS),
    *(partial(photos, partial(small, task)) for task in PHOTOS),
]
STAGED: list[Callable[[], Stages]] = [partial(two_stages, size) for size in TWO_STAGES]
