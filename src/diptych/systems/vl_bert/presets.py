"""Recipes of VL-BERT (Su et al., ICLR 2020, arXiv 1908.08530).

The paper, section 4 (v1):

- Conceptual Captions: batch 256, Adam, rate 1e-4, weight decay 1e-4, 10 epochs on 16 V100. Warm-up takes 8,000 steps,
  then the rate falls linearly.
- VQA: 20 epochs, rate 1e-4, warm-up 2,000.
- VCR: 20 epochs of SGD, rate 2e-3, a tenth of it from epochs 14 and 18 on.
- RefCOCO+: 20 epochs, rate 2e-4, warm-up 500.

`official` is the released code (docs/fidelity.md): no relation, 80/10/10, soft region labels, centre and size, rates
times the batch, and half of the samples mirrored. In its pre-training, text and regions share 64 places.

v1 trains Fast R-CNN with the rest "in both pre-training and fine-tuning phase" (Figure 1), so all of its recipes read
pixels. Boxes are those of a detector of Visual Genome; in VCR and RefCOCO+ those of the annotated objects (`diptych
extract DATA STORE --detector ground-truth`). The code reads pixels in VCR, RefCOCO+ and `official/end-to-end`. A recipe
that starts from a model on stored features reads stored features:

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

# Factor of the rate for the network that reads pixels; it is 1 in all configurations of the code.
OWN_GROUP = {NETWORK: 1.0}

# The sizes and numbers of v1. Steps are epochs times the sizes of the sets: 3.3 M captions, 444 k questions, 120 k
# expressions, 426 k of VCR (one model answers and gives reasons; the authors train two). Images have 600 x 1,000
# pixels.
PRETRAIN = preset(
    "vl-bert/pretrain",
    "The paper's (v1) pre-training from BERT and from pixels on Conceptual Captions.",
    system="vl-bert",
    task="pretrain",
    model=VLBertConfig.base(network="resnet101"),
    init="paper: BERT base",  # section 4.1
    objectives=VLBertObjectives(),
    optimizer=OptimizerConfig(kind="adam", lr=1e-4, weight_decay=1e-4, warmup_steps=8000, lr_multipliers=OWN_GROUP),
    training=TrainingConfig(steps=129_000, batch=256, micro_batch=4, validate_every=5000, average_best=0),
    data=DataConfig(pixels_colours="bgr"),
)
# A choice among 3,129 answers, BUTD's protocol (section 4.2.2), on the official split, train. The code adds the 214 k
# questions of val, so that no questions are left to validate on.
VQA = PRETRAIN.but(
    "vl-bert/vqa",
    "The paper's (v1) questions of VQA 2.0.",
    task="vqa",
    objectives=VqaObjectives(form="softmax"),
    optimizer={"warmup_steps": 2000},
    training={"steps": 34_700},
    data={"answers_most": 3129},
)
# Plain gradient descent with momentum; a tenth of the rate from epochs 14 and 18 of 20 on.
STEPS_DOWN = {"kind": "sgd", "momentum": 0.9, "schedule": "step", "milestones": (93_100, 119_700)}
VCR = PRETRAIN.but(
    "vl-bert/vcr",
    "The paper's (v1) visual commonsense reasoning, with classes of masked regions.",
    task="vcr",
    objectives=VcrObjectives(region_classes="masked"),
    optimizer=STEPS_DOWN | {"lr": 2e-3, "warmup_steps": 1000},
    training={"steps": 133_000, "batch": 64},  # questions of four texts: 256 of the paper's triplets
    data={"max_words": 64, "pixels_longer": 1200},  # both sentences within 64 pieces (vcr.py)
)
REFERRING = PRETRAIN.but(
    "vl-bert/referring",
    "The paper's (v1) referring expressions of RefCOCO+.",
    task="referring",
    objectives=ReferringObjectives(),
    optimizer={"lr": 2e-4, "warmup_steps": 500},
    training={"steps": 9400},
)

# Settings in which the released code differs (docs/fidelity.md); its rates are per sample.
OFFICIAL = PRETRAIN.but(
    "vl-bert/official/pretrain",
    "Pre-training as the released code has it, on stored features: no relation, soft region labels.",
    # Captions and boxes are cut to 32 each (conceptual_captions.py).
    model={"geometry": "official", "visual_norm_init": "official", "hidden_regions": "official"}
    | {"end_visual": "official", "region_budget": "official", "network": None},
    objectives=VLBertObjectives(
        relation=0.0, masking="official", region_hidden=0.9, region_labels="soft", label_sum_within=0.1
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
    "Questions of VQA 2.0 as the released code has it, on stored features: 5 epochs of train and val.",
    task="vqa",
    model={"region_budget": "paper"},
    objectives=VqaObjectives(form="binary"),
    optimizer={"lr": 6.25e-7, "clip": 1.0, "warmup_steps": 500},
    training={"steps": 13_000, "validate_every": None},  # cfgs/vqa
    data={"split": "train+val", "answers_most": 3129, "max_words": 20},
)
OFFICIAL_VCR = OFFICIAL.but(
    "vl-bert/official/vcr",
    "Visual commonsense reasoning as the released code has it, from pixels: each text by itself.",
    task="vcr",
    model={"region_budget": "paper", "network": "resnet101"},
    objectives=VcrObjectives(vcr_loss="sigmoid", region_classes="every"),
    optimizer=STEPS_DOWN | {"lr": 7e-5, "warmup_steps": 1000, "lr_multipliers": OWN_GROUP},
    training={"steps": 133_000, "batch": 64, "micro_batch": 4},
    data={"max_words": 64, "pixels_longer": 1200},
)
OFFICIAL_REFERRING = OFFICIAL.but(
    "vl-bert/official/referring",
    "Referring expressions of RefCOCO+ as the released code has it, from pixels.",
    task="referring",
    model={"region_budget": "paper", "network": "resnet101"},
    objectives=ReferringObjectives(),
    optimizer={"lr": 8e-7, "clip": 1.0, "warmup_steps": 3750, "lr_multipliers": OWN_GROUP},
    training={"steps": 75_000, "batch": 32, "micro_batch": 4},
    data={"max_words": 20},
)

# Soft labels and no relation, as in the ICLR version. The visual norms begin at 0, as in the code: at 1 the image's
# feature outweighs word embeddings that do not come from BERT, and masked words are predicted no better than from text
# alone (experiments/LOG.md).
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
            model=VLBertConfig.large(network="resnet101"),
            init="paper: BERT large",
        )
        for base in (PRETRAIN, VQA, VCR, REFERRING)
    ),
    # Half of each batch is text without images (ICLR version, section 3.3): `--set data.text=FILE` names a file with a
    # sentence a line; the authors read BooksCorpus and Wikipedia. Of 256 samples 128 are then pairs (the code: 4 times
    # 32 and 32), so that 10 epochs of pairs take twice the steps.
    PRETRAIN.but(
        "vl-bert/iclr/text-too",
        "The ICLR version's pre-training: half of each batch is text without pictures (data.text).",
        objectives={"relation": 0.0, "text_alone": 1.0},
        training={"steps": 258_000},
    ),
    OFFICIAL.but(
        "vl-bert/official/text-too",
        "Pre-training as the released code has it, half of each batch text without pictures (data.text).",
        objectives={"text_alone": 1.0},
        optimizer={"warmup_steps": 16_000},
        training={"steps": 258_000},
    ),
    SMALL.but(
        "vl-bert/small/text-too",
        "Pre-training for small worlds and one core, half of each batch text without pictures (data.text).",
        objectives={"text_alone": 1.0},
    ),
    # Fast R-CNN is trained too, with a parameter group of its own: ResNet-101 with stem, stage 1 and batch norms
    # frozen, 256 pairs of 600 x 1000 pixels a step (here in micro-batches of 4). Half of the code's samples are text
    # without images (`official/text-too` has its keys). The code starts from a detector of Visual Genome
    # (`network_init`).
    OFFICIAL.but(
        "vl-bert/official/end-to-end",
        "Pre-training from pixels as the released code has it: Fast R-CNN learns too.",
        model={"network": "resnet101"},
        optimizer={"lr_multipliers": OWN_GROUP},
        training={"micro_batch": 4},
    ),
    # A ResNet-18 with random weights, so that no stage is frozen, on images of 128 pixels, with 4 x 4 cells of a box.
    # Classes are also predicted from pixels alone, from which the network learns soonest (experiments/LOG.md).
    SMALL.but(
        "vl-bert/small/end-to-end",
        "Pre-training from pixels for small worlds: a ResNet-18 that begins from nothing learns too.",
        model={"network": "resnet18", "network_frozen": 0, "network_cells": 4},
        objectives={"seen_classes": 1.0},
        optimizer={"lr_multipliers": OWN_GROUP},
        training={"batch": 16},
        data={"pixels_shorter": 128, "pixels_longer": 192},
    ),
    *photos(SMALL),
)
