"""Unified VLP (Zhou et al. 2020, arXiv 1909.11059): its recipes.

Table 8 (paper): Conceptual Captions, batch 512, rate 3e-4, 30 epochs on 8 V100, 5 hours each; COCO 1e-4, Flickr30k
3e-5, 30 epochs; VQA 2.0 batch 128, 2e-5, 20 epochs. The released weights' names say 1e-4 for Conceptual Captions and
3e-5 for COCO (`official`). Expected on COCO test: CIDEr 116.9, BLEU-4 36.5; VQA test-dev 70.5 (Tables 2 and 4).
The small size is for data such as Storybook: minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from diptych.models.decoding import DecodingOptions
from diptych.runtime.configs import derive
from diptych.systems.objectives import Objectives, RetrievalObjectives, SelfCriticalObjectives, VqaObjectives
from diptych.systems.presets import decisions
from diptych.systems.presets.photos import photos
from diptych.systems.presets.scst import scst, small_scst
from diptych.systems.presets.small import NO_DROPOUT, PAIRS, TRAINING, muon
from diptych.systems.presets.vqa2 import AND_VAL, VQA2
from diptych.systems.recipe import DataConfig, Recipe
from diptych.systems.unified_vlp.model import UnifiedVLPConfig
from diptych.systems.unified_vlp.objectives import UnifiedVLPObjectives
from diptych.training.config import OptimizerConfig, TrainingConfig

Task = Literal["pretrain", "caption", "vqa"]
TASKS: tuple[Task, ...] = ("pretrain", "caption", "vqa")
PHOTOS: tuple[Task, ...] = ("pretrain", "caption")  # recipes for photographs of one's own
LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)  # the share of seq2seq; the paper's grid

_PAPER_RATES = {"pretrain": 3e-4, "caption": 1e-4, "vqa": 2e-5}  # Table 8
_OFFICIAL_RATES = {"pretrain": 1e-4, "caption": 3e-5, "vqa": 2e-5}  # README, and the names of the weights
_BATCHES = {"pretrain": 512, "caption": 512, "vqa": 128}
# The epochs above over the sizes of the sets; of VQA train and val, 658 k questions, or train alone, 444 k.
_STEPS = {"pretrain": 175_000, "caption": 33_000, "vqa": 103_000}
_STEPS_OF_TRAIN = 69_500
_CODES_WORDS = 3  # --max_pred
_OBJECTIVES: dict[Task, Objectives] = {
    "pretrain": UnifiedVLPObjectives(),
    "caption": UnifiedVLPObjectives(seq2seq=1.0),
    "vqa": VqaObjectives(),
}
# BERT's optimizer, as the paper says; clipping is each tensor's own, as the code has it.
_BERT = OptimizerConfig(
    kind="bert_adam",
    eps=1e-6,
    weight_decay=0.01,
    clip_each=1.0,
    schedule="linear",
    warmup_share=0.1,
    warmup_from_zero=True,
)


def paper(task: Task) -> Recipe:
    """The paper's own sizes and numbers."""
    asks = task == "vqa"
    return Recipe(
        name=f"unified-vlp/{task}",
        system="unified-vlp",
        task=task,
        model=UnifiedVLPConfig.base(fc7=True, norm_eps=1e-12),  # "the same as BERT-base", and fc7 is fine-tuned
        init="paper: UniLM",  # "the weights in our BERT model are initialized from UniLM" (Implementation details)
        objectives=_OBJECTIVES[task],
        optimizer=derive(_BERT, lr=_PAPER_RATES[task]),
        training=TrainingConfig(
            steps=_STEPS[task],
            batch=_BATCHES[task],
            micro_batch=64,
            validate_every=None if asks else 5000,
            keep=2,
        ),
        decoding=DecodingOptions(beams=5),
        data=derive(
            VQA2 if asks else DataConfig(), lowercase=False, **(AND_VAL if asks else {})
        ),  # as UniLM's words are
    )


def of_train() -> Recipe:
    """Table 7: answers on val, of a model that has learnt train alone."""
    training = {"steps": _STEPS_OF_TRAIN, "validate_every": 5000}
    return derive(paper("vqa"), name="unified-vlp/vqa/train", training=training, data={"split": "train"})


def official(task: Task) -> Recipe:
    """As the released code does it, where that differs (docs/fidelity.md)."""
    recipe = paper(task)
    return derive(
        recipe,
        name=f"unified-vlp/official/{task}",
        model=UnifiedVLPConfig.base(region_embedding="official", box_norm="official", geometry="official"),
        objectives={"masks_a_word": True} if task == "vqa" else {"most": _CODES_WORDS},
        optimizer={"lr": _OFFICIAL_RATES[task]},
    )


def small(task: Task) -> Recipe:
    """For small worlds and one core: a query for every word instead of 15% masks, answers read at a [MASK] and learnt
    against each other, and higher rates.
    """
    own: dict[str, str] = {"caption": {"words": "queries"}, "vqa": {"form": "softmax"}}.get(task, {})
    return Recipe(
        name=f"unified-vlp/small/{task}",
        system="unified-vlp",
        task=task,
        model=UnifiedVLPConfig.tiny(whole_region="given", answer_slot=True, **NO_DROPOUT),
        objectives=derive(_OBJECTIVES[task], **own),
        optimizer=muon("encoder.layers."),
        training=TRAINING,
        decoding=DecodingOptions(beams=1),
    )


def on_flickr30k() -> Recipe:
    """Captions of Flickr30k (Table 8): its rate, and 30 epochs of its 145,000 captions."""
    recipe = paper("caption")
    return derive(recipe, name=f"{recipe.name}/flickr30k", optimizer={"lr": 3e-5}, training={"steps": 8500})


def without_pretraining() -> Recipe:
    """Captions of COCO by a model that has not been pre-trained on pictures (Table 8): three times the rate."""
    recipe = paper("caption")
    return derive(recipe, name=f"{recipe.name}/without-pretraining", optimizer={"lr": 3e-4})


def with_lambda(seq2seq: float) -> Recipe:
    """A point of the paper's grid of lambda."""
    return derive(paper("pretrain"), name=f"unified-vlp/pretrain/lambda-{seq2seq:g}", objectives={"seq2seq": seq2seq})


def region_class_pretext() -> Recipe:
    """Table 6, first row: the region's class is asked for and not told."""
    return derive(
        paper("pretrain"),
        name="unified-vlp/pretrain/region-class-pretext",
        model={"class_input": False},
        objectives={"region_class": 1.0},
    )


def masked_queries(size: Literal["paper", "small"]) -> Recipe:
    """Diptych's own: a query at every word instead of masks on 15% (decision 0005)."""
    recipe = paper("pretrain") if size == "paper" else small("pretrain")
    return derive(recipe, name=f"{recipe.name}/queries", objectives={"words": "queries"})


def retrieval() -> Recipe:
    """Pairs told apart, as ImageBERT does it; Unified VLP's authors did not try."""
    return derive(
        small("pretrain"),
        name="unified-vlp/small/retrieval",
        task="retrieval",
        objectives=RetrievalObjectives(),
        training=PAIRS,
    )


def self_critical(size: Literal["paper", "official", "small"]) -> Recipe:
    """SCST of a captioner.

    Table 8: batch 64, rate 1e-6, 30 epochs over COCO's 113,287 pictures, or over their 566,747 captions in the code.
    The rates of both start a captioner that cross-entropy has trained (run_img2txt_dist.py, `--scst`).
    """
    if size == "small":
        return small_scst(small("caption"), "queries")
    code = size == "official"
    objectives = SelfCriticalObjectives(writes="queries", references=size, dropout=code)
    steps = 265_000 if code else 53_000
    training = {"steps": steps, "batch": 64, "micro_batch": None}
    return scst(official("caption") if code else paper("caption"), objectives, {"lr": 1e-6}, training)


MAKERS: list[Callable[[], Recipe]] = [
    *(partial(make, task) for make in (paper, official, small) for task in TASKS),
    *(partial(with_lambda, share) for share in LAMBDAS),
    of_train,
    region_class_pretext,
    on_flickr30k,
    without_pretraining,
    partial(masked_queries, "paper"),
    partial(masked_queries, "small"),
    retrieval,
    *(partial(self_critical, size) for size in ("paper", "official", "small")),
    *(partial(decisions.small, small, task) for task in decisions.TASKS),
    *(partial(photos, partial(small, task)) for task in PHOTOS),
    partial(photos, retrieval),
]
