"""Recipes of XGPT (Xia et al. 2020, arXiv 2003.01473).

The paper, sections 5.1 and 5.3 (training took eight days on 8 V100):

- Stage 1: pre-training on text without images.
- Stage 2: Conceptual Captions, batch 512, all weights 1. The rate falls from 1e-4 to 2e-5 (inverse square root).
- Stage 3: captions of COCO, rate 1e-5, weight 0.3 for all tasks except captioning.
- Stage 4: only captioning, 30 epochs.

    diptych pretrain xgpt/text --data STORE --out text --set data.text=sentences.txt
    diptych pretrain xgpt/pretrain --data STORE --out web --model text
    diptych pretrain xgpt/in-domain --data COCO --out coco --model web
    diptych finetune caption --recipe xgpt/caption --data COCO --out caption --model coco

Each stage starts from the mean weights of the 4 best checkpoints of the previous stage. Steps are iterations per task x
number of tasks. Each task has 60,000 iterations on Conceptual Captions (10 epochs of 3.1 M captions). On COCO's 567 k
captions, a task has 11,000 iterations (10 epochs), and captioning alone has 33,000 (30 epochs).

Scores in the paper on COCO test, with beam 2: CIDEr 120.1, BLEU-4 37.2 (Table 1). The scores of Tables 2 to 4 are next
to their recipes below. docs/fidelity.md lists choices that the paper leaves open.
"""

from collections.abc import Iterator
from typing import Any

from diptych.models.decoding import DecodingOptions
from diptych.systems.preset import Fields, Preset, preset
from diptych.systems.recipe import DataConfig
from diptych.systems.shared import NO_DROPOUT, TRAINING, muon, photos, small_scst, small_task
from diptych.systems.xgpt.model import XgptConfig
from diptych.systems.xgpt.objectives import XgptObjectives
from diptych.tasks.caption import CaptionObjectives
from diptych.tasks.retrieval import RetrievalObjectives
from diptych.tasks.vqa import VqaObjectives
from diptych.training.config import OptimizerConfig, TrainingConfig

# Recipes with the paper's sizes and hyperparameters.
PRETRAIN = preset(
    "xgpt/pretrain",
    "The paper's second stage: all four tasks on Conceptual Captions, from the model of xgpt/text.",
    system="xgpt",
    task="pretrain",
    model=XgptConfig.base(),
    init="paper: xgpt/text",
    objectives=XgptObjectives(),
    # The warm-up is 4% of the steps. Then the learning rate falls by inverse square root to 2e-5, a fifth of its peak.
    optimizer=OptimizerConfig(
        kind="adam", lr=1e-4, betas=(0.9, 0.98), eps=1e-9, schedule="inverse_sqrt", warmup_share=0.04
    ),
    training=TrainingConfig(
        steps=240_000, batch=512, micro_batch=64, validate_every=2500, average_best=4, keep=2
    ),  # the paper averages weights only in pre-training (section 5.3)
    # The maximum length of a caption in training, plus [SEP].
    decoding=DecodingOptions(beams=2, max_words=58),
    # There are 60 positions: 57 words, [SEP], and [MASK] [SEP] for an answer.
    data=DataConfig(max_words=57, tokens="bpe"),
)
TEXT_ALONE = XgptObjectives(captions=0, fragments=0, denoising=0, regions=0, text_words=1, text_fragments=1)
# Batches contain only sentences of the text file (data.text).
LINES: dict[str, Any] = {"text_joined": False, "text_share": 1.0, "text_words": 57}
TEXT = PRETRAIN.but(
    "xgpt/text",
    "The paper's first stage: masked words and MASS on a text file (data.text), from random weights.",
    init=None,
    objectives=TEXT_ALONE,
    training={"steps": 120_000},
    data=LINES,
)
IN_DOMAIN = PRETRAIN.but(
    "xgpt/in-domain",
    "The paper's third stage: all four tasks on COCO's captions, with weight 0.3 except for captioning.",
    init="paper: xgpt/pretrain",
    objectives={"fragments": 0.3, "denoising": 0.3, "regions": 0.3},  # the weight lambda in the paper
    optimizer={"lr": 1e-5},
    training={"steps": 44_000},
)
CAPTION = PRETRAIN.but(
    "xgpt/caption",
    "The paper's captions of COCO, after all three stages.",
    task="caption",
    init="paper: xgpt/in-domain",
    objectives=CaptionObjectives(),
    optimizer={"lr": 1e-5},
    training={"steps": 33_000, "average_best": 0},
)
# The paper has no VQA and no retrieval, so these settings follow VL-BERT and TDEN: 20 epochs of VQA 2.0, 30 of
# Flickr30k, batch 128.
VQA = PRETRAIN.but(
    "xgpt/vqa",
    "Questions of VQA 2.0, which the paper does not have.",
    task="vqa",
    init="paper: xgpt/pretrain",
    objectives=VqaObjectives(),
    optimizer={"lr": 5e-5},
    training={"steps": 69_500, "batch": 128, "average_best": 0},
)
RETRIEVAL = VQA.but(
    "xgpt/retrieval",
    "Retrieval on Flickr30k, which the paper does not have.",
    task="retrieval",
    objectives=RetrievalObjectives(),
    training={"steps": 34_000},
)

SMALL = preset(
    "xgpt/small/pretrain",
    "Pre-training with all four tasks, for small worlds and one core.",
    system="xgpt",
    task="pretrain",
    model=XgptConfig.small(**NO_DROPOUT),
    objectives=XgptObjectives(),
    optimizer=muon("refining.", "encoder.", "own_decoder."),
    training=TRAINING,
    decoding=DecodingOptions(beams=1),
)
SMALL_IN_DOMAIN = SMALL.but(
    "xgpt/small/in-domain",
    "The third stage, with weight 0.3 except for captioning, for small worlds and one core.",
    objectives={"fragments": 0.3, "denoising": 0.3, "regions": 0.3},
)
SMALL_CAPTION = small_task(SMALL, "caption")

# Table 2 compares sets of pre-training tasks, all with captioning. Rows 1 to 5 are pre-trained only out of domain. Rows
# 6 to 9 are also pre-trained in domain, starting from the row with the same tasks. CIDEr in the paper: 116.4, 117.7,
# 118.1, 117.3, 118.3; 119.1, 119.2, 118.2, 120.1.
OFF = {"fragments": 0.0, "denoising": 0.0, "regions": 0.0}
TABLE_2: dict[str, tuple[str, ...]] = {
    "captioning alone": (),
    "captioning and IMLM": ("fragments",),
    "captioning and IDA": ("denoising",),
    "captioning and TIFG": ("regions",),
    "all four tasks": ("fragments", "denoising", "regions"),
}


def table_2(base: Preset, iterations: int) -> Iterator[Preset]:
    """Yield a recipe for each row of Table 2 whose tasks differ from `base`. Each task has `iterations` steps."""
    in_domain, small = "in-domain" in base.name, ", for small worlds" if "small" in base.name else ""
    for row, (what, tasks) in enumerate([*TABLE_2.items()][in_domain:], start=6 if in_domain else 1):
        changes: Fields = {
            "objectives": {task: weight for task, weight in OFF.items() if task not in tasks},
            "training": {"steps": iterations * (1 + len(tasks))},
        }
        if base is IN_DOMAIN:
            changes["init"] = f"paper: xgpt/pretrain/table-2-row-{row - 4}"
        about = f"Table 2{small}, row {row}: {'in domain, ' if in_domain else ''}{what}."
        yield base.but(f"{base.name}/table-2-row-{row}", about, **changes)


RECIPES: tuple[Preset, ...] = (
    *(TEXT, PRETRAIN, IN_DOMAIN, CAPTION, VQA, RETRIEVAL, SMALL, SMALL_IN_DOMAIN),
    # Flickr30k instead of COCO: the same number of epochs, over its 145,000 captions.
    IN_DOMAIN.but(
        "xgpt/in-domain/flickr30k", "The third stage, on Flickr30k instead of COCO.", training={"steps": 11_200}
    ),
    CAPTION.but(
        "xgpt/caption/flickr30k",
        "Captions of Flickr30k instead of COCO.",
        init="paper: xgpt/in-domain/flickr30k",
        training={"steps": 8500},
    ),
    *table_2(PRETRAIN, 60_000),
    *table_2(IN_DOMAIN, 11_000),
    *table_2(SMALL, 300),
    *table_2(SMALL_IN_DOMAIN, 300),
    # The models of Table 3 are not pre-trained, so these recipes use the learning rate of pre-training. Section 6 asks
    # for "a similar number of parameters", so the tiny EncDec has 3 + 3 layers and 79 M parameters: 6 + 6 layers would
    # have 129 M, and the other tiny models have 72 M. CIDEr in the paper: 112.1, 110.8, 112.7, 112.9.
    *(
        CAPTION.but(
            f"xgpt/caption/table-3-{name}",
            f"Table 3: captions of COCO from scratch, {what}.",
            model=model,
            init=None,
            optimizer={"lr": 1e-4},
        )
        for name, what, model in (
            ("tiny-enc", "a tiny encoder alone", XgptConfig.tiny(structure="enc")),
            ("tiny-encdec", "a tiny encoder and a decoder", XgptConfig.tiny(structure="encdec", layers=3)),
            ("tiny-encdec-share", "a tiny shared encoder and decoder", XgptConfig.tiny(structure="encdec-share")),
            ("base-encdec-share", "the shared encoder and decoder", XgptConfig.base(structure="encdec-share")),
        )
    ),
    *(
        SMALL_CAPTION.but(
            f"xgpt/small/caption/table-3-{name}",
            f"Table 3, for small worlds: captions from scratch, {what}.",
            model=XgptConfig.small(structure=name, **NO_DROPOUT),
        )
        for name, what in (
            ("enc", "an encoder alone"),
            ("encdec", "an encoder and a decoder"),
            ("encdec-share", "a shared encoder and decoder"),
        )
    ),
    # Table 4: captioning and IDA, with one [MASK] per span or per word. CIDEr in the paper: 118.1 and 117.8.
    *(
        base.but(
            f"{base.name}/table-4-{masks}",
            f"Table 4{' for small worlds' if base is SMALL else ''}: captioning and IDA, {what}.",
            objectives={"fragments": 0.0, "regions": 0.0, "masks": masks},
            training={"steps": steps},
        )
        for base, steps in ((PRETRAIN, 120_000), (SMALL, 600))
        for masks, what in (("single", "one [MASK] per span"), ("multi", "one [MASK] per word"))
    ),
    SMALL.but(
        "xgpt/small/text",
        "The first stage, on a text file (data.text), for small worlds and one core.",
        objectives=TEXT_ALONE,
        data=LINES,
    ),
    small_scst(SMALL_CAPTION, "decoder"),  # SCST is not in XGPT's paper, but in the papers of other systems
    *photos(SMALL, SMALL_CAPTION),
)
