"""Recipes of ImageBERT (Qi et al. 2020, arXiv 2001.07966).

The paper, section 5:

- The model is BERT base with 100 regions, 144 positions in all.
- Pre-training: batch 48, Adam, rate 1e-4, 17 epochs on 4 V100.
- Retrieval on Flickr30k and COCO: batch 24, rate 5e-5, 130 epochs.
- The paper does not state warm-up and decay; here they are 10% and linear, as in BERT.
- The number of steps is epochs x data set size / batch. Sizes: LAIT 2M (the part used), Conceptual Captions 3M, SBU 1M.

R@1 for image and caption retrieval in the paper: Flickr30k zero-shot 54.3 and 70.7 after two stages (Table 3),
Flickr30k fine-tuned 73.1 and 87.0 (Table 2), COCO 1k fine-tuned 73.6 and 85.4.
"""

from diptych.runtime.configs import derive
from diptych.systems.image_bert.model import ImageBertConfig
from diptych.systems.image_bert.objectives import ImageBertObjectives
from diptych.systems.preset import Preset, StagedPreset, preset
from diptych.systems.recipe import DataConfig
from diptych.systems.shared import NO_DROPOUT, TRAINING, muon, photos
from diptych.tasks.retrieval import RetrievalObjectives
from diptych.tasks.vqa import VqaObjectives
from diptych.training.config import OptimizerConfig, TrainingConfig

# Recipes with the paper's sizes and hyperparameters.
PRETRAIN = preset(
    "image-bert/pretrain",
    "The paper's pre-training from BERT: 17 epochs of Conceptual Captions and SBU together.",
    system="image-bert",
    task="pretrain",
    model=ImageBertConfig.base(),
    init="paper: BERT base",  # as in section 5.1 of the paper
    objectives=ImageBertObjectives(chosen_words="chance"),
    optimizer=OptimizerConfig(kind="adam", lr=1e-4, schedule="linear", warmup_share=0.1),
    training=TrainingConfig(steps=1_417_000, batch=48, validate_every=5000, average_best=0),
    data=DataConfig(max_words=42),  # the paper's 144 positions, less 100 regions and 2 special tokens
)
RETRIEVAL = PRETRAIN.but(
    "image-bert/retrieval",
    "The paper's retrieval on Flickr30k after pre-training, with only the binary loss (the best of Table 4).",
    task="retrieval",
    objectives=RetrievalObjectives(),
    optimizer={"lr": 5e-5},
    training={"steps": 785_000, "batch": 24},
)
VQA = PRETRAIN.but(
    "image-bert/vqa",
    "Questions of VQA 2.0, 20 epochs; the paper does not have this task.",
    task="vqa",
    objectives=VqaObjectives(),
    optimizer={"lr": 5e-5},
    training={"steps": 69_500, "batch": 128},
)

# Table 3 compares data sets and stages of pre-training. Its rows CC and CC+SBU do not use MRFR: their numbers, such as
# 33.0/60.6/72.5 for CC, also occur in Table 4 in rows without MRFR. The rows with LAIT use all four tasks: they are the
# pre-training stages of the model in Tables 1 and 2, which both have "all of our four tasks" (section 4.2). For the row
# LAIT+CC+SBU, the paper does not state the tasks; here it has all four, so that only the stages differ.
LAIT = PRETRAIN.but(
    "image-bert/pretrain/lait",
    "Table 3: pre-training on LAIT alone.",
    training={"steps": 708_333},
    data={"split": "lait"},
)
CC = PRETRAIN.but(
    "image-bert/pretrain/cc",
    "Table 3: pre-training on Conceptual Captions alone, without MRFR.",
    training={"steps": 1_062_500},
    data={"split": "cc"},
    objectives={"region_features": 0.0},
)
CC_SBU = PRETRAIN.but(
    "image-bert/pretrain/cc+sbu",
    "Table 3: pre-training on Conceptual Captions and SBU in one stage, without MRFR.",
    training={"steps": 1_416_666},
    data={"split": "cc+sbu"},
    objectives={"region_features": 0.0},
)

# Half of the pairs are mismatched. The matching loss begins to fall only after about 1,400 steps, when words attend to
# their regions.
SMALL = preset(
    "image-bert/small/pretrain",
    "Pre-training for small drawn worlds and one core; half of the pairs are mismatched.",
    system="image-bert",
    task="pretrain",
    model=ImageBertConfig.tiny(whole_region="given", answer_slot=True, **NO_DROPOUT),
    objectives=ImageBertObjectives(wrong_pairs="instead"),
    optimizer=muon("encoder.layers."),
    training=derive(TRAINING, steps=2400),
)
# Splits of Storybook replace the data sets of Table 3: `web` for LAIT (large and noisy), `train` for the others. All
# rows use all four tasks. Two stages read as many samples as one stage over both splits.
WEB = SMALL.but(
    "image-bert/small/pretrain/web",
    "Table 3 for small worlds: pre-training on the noisy split, web, alone.",
    data={"split": "web"},
)
TRAIN = SMALL.but(
    "image-bert/small/pretrain/train", "Table 3 for small worlds: pre-training on the clean split, train, alone."
)

RECIPES: tuple[Preset | StagedPreset, ...] = (
    *(PRETRAIN, RETRIEVAL, VQA, LAIT, CC, CC_SBU, SMALL, WEB, TRAIN),
    PRETRAIN.but(
        "image-bert/pretrain/lait+cc+sbu",
        "Table 3: pre-training on LAIT, Conceptual Captions and SBU in one stage.",
        training={"steps": 2_125_000},
        data={"split": "lait+cc+sbu"},
    ),
    StagedPreset(
        "image-bert/pretrain/lait-then-cc+sbu",
        "Table 3, last row, the paper's own: LAIT, then Conceptual Captions and SBU.",
        (LAIT, CC_SBU.but("", "", objectives={"region_features": 1.0})),
    ),
    CC_SBU.but(
        "image-bert/pretrain/global",
        "Table 4, part 1: also with the feature of the whole image, on Conceptual Captions and SBU.",
        model={"whole_region": True},
    ),
    CC.but(
        "image-bert/pretrain/cc+mrfr",
        "Table 4, part 2: also with MRFR, on Conceptual Captions.",
        objectives={"region_features": 1.0},
    ),
    RETRIEVAL.but(
        "image-bert/retrieval/36-regions",
        "Table 4, part 3: retrieval on Flickr30k with 36 regions per image.",
        model={"max_regions": 36},
    ),
    *(
        RETRIEVAL.but(
            f"image-bert/retrieval/{name}", f"Table 4, part 4: retrieval on Flickr30k by {what}.", objectives=losses
        )
        for name, what, losses in (
            ("binary+choice+triplet", "all three losses", {"choice": 1.0, "triplet": 1.0}),
            ("choice", "the multi-class loss alone", {"binary": 0.0, "choice": 1.0}),
            ("triplet", "the triplet loss alone", {"binary": 0.0, "triplet": 1.0}),
        )
    ),
    RETRIEVAL.but(
        "image-bert/retrieval/coco",
        "Retrieval on COCO (Table 2): 130 epochs of its 566,747 captions.",
        training={"steps": 3_070_000},
    ),
    SMALL.but(
        "image-bert/small/pretrain/web+train",
        "Table 3 for small worlds: both splits in one stage.",
        training={"steps": 4800},
        data={"split": "web+train"},
    ),
    StagedPreset(
        "image-bert/small/pretrain/web-then-train",
        "Table 3 for small worlds: the noisy split, then the clean one.",
        (WEB, TRAIN),
    ),
    *photos(SMALL),
)
