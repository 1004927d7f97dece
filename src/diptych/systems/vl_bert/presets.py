"""Recipes of VL-BERT (Su et al., ICLR 2020, arXiv 1908.08530).

The paper, section 4 (v1):

- Conceptual Captions: batch 256, Adam, rate 1e-4, weight decay 1e-4, 10 epochs on 16 V100. Warm-up takes 8,000 steps,
  then the rate falls linearly.
- VQA: 20 epochs, rate 1e-4, warm-up 2,000.
- VCR: 20 epochs of SGD, rate 2e-3, divided by 10 after epochs 14 and 18.
- RefCOCO+: 20 epochs, rate 2e-4, warm-up 500.

`official` recipes follow the released code (docs/fidelity.md). It has no relation loss, and masks words 80/10/10.
Region labels are soft. Boxes are centre and size. Learning rates are per sample, so they are multiplied by the batch
size. Half of the samples are mirrored. In pre-training, text and regions share 64 positions.

v1 also trains Fast R-CNN, "in both pre-training and fine-tuning phase" (Figure 1), so all recipes of v1 read pixels.
Boxes come from a detector trained on Visual Genome. In VCR and RefCOCO+ they are the annotated objects (`diptych
extract DATA STORE --detector ground-truth`). The code reads pixels in VCR, RefCOCO+ and `official/end-to-end`. If the
initial model reads stored features, fine-tuning reads them too:

    diptych import vl-bert vl-bert-base-e2e.model --out imported --vocab vocab.txt
    diptych finetune vcr --recipe vl-bert/official/vcr --data STORE --model imported --out runs/vcr
"""

from diptych.models.system import NETWORK
from diptych.systems.preset import Preset, preset
from diptych.systems.recipe import DataConfig
from diptych.systems.shared import NO_DROPOUT, TRAINING, muon, photos
from diptych.systems.vl_bert.model import VLBertConfig
from diptych.systems.vl_bert.objectives import VLBertObjectives
from diptych.tasks.referring import ReferringObjectives
from diptych.tasks.vcr import VcrObjectives
from diptych.tasks.vqa import VqaObjectives
from diptych.training.config import OptimizerConfig, TrainingConfig

# Factor of the learning rate for the network that reads pixels. It is 1 in all configurations of the authors' code.
OWN_GROUP = {NETWORK: 1.0}

# Figure 1: "All parameters [...] are jointly trained". The code freezes the stem, stage 1 and all batch norms.
NETWORK_OF_PAPER = {"network": "resnet101", "network_frozen": 0, "network_norms_frozen": False}
DETECTORS = "paper: ResNet-101 of a Visual Genome detector"  # initial weights of the network (section 4.1)

# Recipes of the paper's first version (arXiv v1). Steps are epochs x data set size / batch: 3.3 M captions, 444 k
# questions, 120 k expressions, 426 k samples of VCR (here one model predicts answers and rationales; the authors train
# two). Images have 600 x 1,000 pixels.
PRETRAIN = preset(
    "vl-bert/pretrain",
    "The paper's (v1) pre-training from BERT and from pixels on Conceptual Captions.",
    system="vl-bert",
    task="pretrain",
    model=VLBertConfig.base(**NETWORK_OF_PAPER),
    init="paper: BERT base",  # as in section 4.1 of the paper
    network_init=DETECTORS,
    objectives=VLBertObjectives(chosen_words="chance"),
    optimizer=OptimizerConfig(
        kind="adam",
        lr=1e-4,
        weight_decay=1e-4,
        decay_biases_and_norms=True,
        warmup_steps=8000,
        lr_multipliers=OWN_GROUP,
    ),
    training=TrainingConfig(steps=129_000, batch=256, micro_batch=4, validate_every=5000, average_best=0),
    data=DataConfig(pixels_colours="bgr"),
)
# The 3,129 possible answers follow the paper on bottom-up attention (section 4.2.2). The split is the official train
# split. The authors' code also trains on the 214 k questions of val, which leaves no questions for validation.
VQA = PRETRAIN.but(
    "vl-bert/vqa",
    "The paper's (v1) questions of VQA 2.0.",
    task="vqa",
    objectives=VqaObjectives(form="softmax"),
    optimizer={"warmup_steps": 2000},
    training={"steps": 34_700},
    data={"answers_most": 3129},
)
# SGD with momentum. The learning rate is divided by 10 after epochs 14 and 18 of 20.
STEPS_DOWN = {"kind": "sgd", "momentum": 0.9, "schedule": "step", "milestones": (93_100, 119_700)}
VCR = PRETRAIN.but(
    "vl-bert/vcr",
    "The paper's (v1) visual commonsense reasoning, also with masked region classification.",
    task="vcr",
    objectives=VcrObjectives(region_classes="masked"),
    optimizer=STEPS_DOWN | {"lr": 2e-3, "warmup_steps": 1000},
    # 64 questions with four choices each are 256 triplets in the paper's count.
    training={"steps": 133_000, "batch": 64},
    data={"max_words": 64, "pixels_longer": 1200},  # question and choice together have at most 64 tokens (vcr.py)
)
REFERRING = PRETRAIN.but(
    "vl-bert/referring",
    "The paper's (v1) referring expressions of RefCOCO+.",
    task="referring",
    objectives=ReferringObjectives(),
    optimizer={"lr": 2e-4, "warmup_steps": 500},
    training={"steps": 9400},
)

# Recipes with the settings of the released code (docs/fidelity.md), which states learning rates per sample.
OFFICIAL = PRETRAIN.but(
    "vl-bert/official/pretrain",
    "Pre-training as in the released code, on stored features: no relation, soft region labels.",
    # The authors' code keeps at most 32 tokens and 32 regions (conceptual_captions.py).
    model={"geometry": "official", "visual_norm_init": "official", "hidden_regions": "official"}
    | {"end_visual": "official", "region_budget": "official"}
    | {"network": None, "network_frozen": 2, "network_norms_frozen": True},
    objectives=VLBertObjectives(
        chosen_words="chance",
        relation=0.0,
        masking="official",
        region_hidden=0.9,
        region_labels="soft",
        label_sum_within=0.1,
    ),
    optimizer=OptimizerConfig(
        kind="adamw",
        lr=1e-7,
        lr_times_batch=True,
        eps=1e-6,
        weight_decay=1e-4,
        decay_biases_and_norms=True,
        clip=10.0,
        warmup_steps=8000,
    ),
    training={"micro_batch": 64},
    data={"mirror": 0.5, "max_words": 30},
)
OFFICIAL_VQA = OFFICIAL.but(
    "vl-bert/official/vqa",
    "Questions of VQA 2.0 as in the released code, on stored features: 5 epochs of train and val.",
    task="vqa",
    model={"region_budget": "paper"},
    objectives=VqaObjectives(form="binary"),
    optimizer={"lr": 6.25e-7, "clip": 1.0, "warmup_steps": 500},
    training={"steps": 13_000, "validate_every": None},  # as in the authors' cfgs/vqa
    data={"split": "train+val", "answers_most": 3129, "max_words": 20},
)
OFFICIAL_VCR = OFFICIAL.but(
    "vl-bert/official/vcr",
    "Visual commonsense reasoning as in the released code, from pixels: each candidate text is scored separately.",
    task="vcr",
    model={"region_budget": "paper", "network": "resnet101"},
    network_init=DETECTORS,
    objectives=VcrObjectives(vcr_loss="sigmoid", region_classes="every"),
    optimizer=STEPS_DOWN | {"lr": 7e-5, "warmup_steps": 1000, "lr_multipliers": OWN_GROUP},
    training={"steps": 133_000, "batch": 64, "micro_batch": 4},
    data={"max_words": 64, "pixels_longer": 1200},
)
OFFICIAL_REFERRING = OFFICIAL.but(
    "vl-bert/official/referring",
    "Referring expressions of RefCOCO+ as in the released code, from pixels.",
    task="referring",
    model={"region_budget": "paper", "network": "resnet101"},
    network_init=DETECTORS,
    objectives=ReferringObjectives(),
    optimizer={"lr": 8e-7, "clip": 1.0, "warmup_steps": 3750, "lr_multipliers": OWN_GROUP},
    training={"steps": 75_000, "batch": 32, "micro_batch": 4},
    data={"max_words": 20},
)

# As in the ICLR version: soft labels, no relation loss. As in the authors' code, the weights of the visual layer norms
# start at 0. If they start at 1 in a random encoder, the image's feature is much larger than the word embeddings, and
# masked words are predicted no better than from text alone (experiments/LOG.md).
SMALL = preset(
    "vl-bert/small/pretrain",
    "Pre-training for small worlds and one core; soft region labels and no relation, as in the ICLR version.",
    system="vl-bert",
    task="pretrain",
    model=VLBertConfig.tiny(
        whole="given", visual_norm_init="official", hidden_regions="official", end_visual="official", **NO_DROPOUT
    ),
    objectives=VLBertObjectives(relation=0.0, region_labels="soft", region_hidden=0.9),
    optimizer=muon("encoder.layers."),
    training=TRAINING,
)

RECIPES: tuple[Preset, ...] = (
    *(PRETRAIN, VQA, VCR, REFERRING, OFFICIAL, OFFICIAL_VQA, OFFICIAL_VCR, OFFICIAL_REFERRING, SMALL),
    *(
        base.but(
            base.name.replace("/", "/large/"),
            base.about.removesuffix(".") + ", with 24 layers, 1,024 wide (ICLR version).",
            model=VLBertConfig.large(**NETWORK_OF_PAPER),
            init="paper: BERT large",
        )
        for base in (PRETRAIN, VQA, VCR, REFERRING)
    ),
    # Half of each batch is text without images (ICLR version, section 3.3). `--set data.text=FILE` names a file with
    # one sentence per line; the authors use BooksCorpus and Wikipedia. Only 128 of 256 samples are pairs (authors'
    # code: 4 x 32 pairs and 4 x 32 texts), so 10 epochs of pairs take twice as many steps.
    PRETRAIN.but(
        "vl-bert/iclr/text-too",
        "The ICLR version's pre-training: half of each batch is text without images (data.text).",
        objectives={"relation": 0.0, "text_alone": 1.0},
        training={"steps": 258_000},
    ),
    OFFICIAL.but(
        "vl-bert/official/text-too",
        "Pre-training as in the released code; half of each batch is text without images (data.text).",
        objectives={"text_alone": 1.0},
        optimizer={"warmup_steps": 16_000},
        training={"steps": 258_000},
    ),
    SMALL.but(
        "vl-bert/small/text-too",
        "Pre-training for small worlds and one core; half of each batch is text without images (data.text).",
        objectives={"text_alone": 1.0},
    ),
    # Fast R-CNN is also trained, as a separate parameter group. It has a ResNet-101, whose stem, stage 1 and batch
    # norms are frozen. A step has 256 pairs with images of 600 x 1000 pixels, here in micro-batches of 4. In the
    # authors' code, half of the samples are text without images (see `official/text-too`), and training starts from a
    # detector of Visual Genome (`network_init`).
    OFFICIAL.but(
        "vl-bert/official/end-to-end",
        "Pre-training from pixels as in the released code: Fast R-CNN is trained too.",
        model={"network": "resnet101"},
        network_init=DETECTORS,
        optimizer={"lr_multipliers": OWN_GROUP},
        training={"micro_batch": 4},
    ),
    # A ResNet-18 with random weights, so no stage is frozen. Images have 128 pixels, boxes have 4 x 4 cells. Classes
    # are also predicted directly from the pixels, which trains the network fastest (experiments/LOG.md).
    SMALL.but(
        "vl-bert/small/end-to-end",
        "Pre-training from pixels for small worlds: a ResNet-18 with random weights is trained too.",
        model={"network": "resnet18", "network_frozen": 0, "network_cells": 4},
        objectives={"seen_classes": 1.0},
        optimizer={"lr_multipliers": OWN_GROUP},
        training={"batch": 16},
        data={"pixels_shorter": 128, "pixels_longer": 192},
    ),
    *photos(SMALL),
)
