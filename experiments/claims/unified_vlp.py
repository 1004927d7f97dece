"""Claims of Unified VLP (Zhou et al., AAAI 2020, arXiv 1909.11059)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import ACCURACY, CIDER, Claim, gain_over, over

vlp, paper = "unified-vlp", "Unified VLP"
pretrained = Stage("unified-vlp/small/pretrain")
written = Stage("unified-vlp/small/pretrain", ("objectives.seq2seq=1",))
read = Stage("unified-vlp/small/pretrain", ("objectives.seq2seq=0",))
pretext = Stage("unified-vlp/small/pretrain", ("model.class_input=false", "objectives.region_class=1"))


def caption(start: Stage | None, *settings: str) -> Arm:
    name = f"{vlp}/small/caption"
    return Arm(start.then(name, *settings) if start else Stage(name, settings), "caption")


def vqa(start: Stage | None) -> Arm:
    return Arm(start.then(f"{vlp}/small/vqa") if start else Stage(f"{vlp}/small/vqa"), "vqa")


soon, many = ("training.steps=60", "training.validate_every=30"), ("data.records=1000",)
CLAIMS: list[Claim] = [
    Claim(
        "vlp-pretrained-caption",
        paper,
        "pre-training helps captions",
        "Table 2, COCO",
        CIDER,
        2.6,
        over(caption(pretrained), caption(None)),
        note="the paper's baseline begins from UniLM, ours anew",
    ),
    Claim(
        "vlp-pretrained-vqa",
        paper,
        "pre-training helps VQA",
        "Table 2, test-std",
        ACCURACY,
        0.7,
        over(vqa(pretrained), vqa(None)),
        note="as above",
    ),
    Claim(
        "vlp-seq2seq-caption",
        paper,
        "seq2seq alone is best for captions",
        "Table 2, COCO",
        CIDER,
        0.8,
        over(caption(written), caption(pretrained)),
    ),
    Claim(
        "vlp-bidirectional-vqa",
        paper,
        "bidirectional alone is best for VQA",
        "Table 2, test-std",
        ACCURACY,
        0.6,
        over(vqa(read), vqa(pretrained)),
    ),
    Claim(
        "vlp-mix-caption",
        paper,
        "for captions the mix is above bidirectional",
        "Table 2, COCO",
        CIDER,
        0.4,
        over(caption(pretrained), caption(read)),
    ),
    Claim(
        "vlp-mix-vqa",
        paper,
        "for VQA the mix is above seq2seq",
        "Table 2, test-std",
        ACCURACY,
        0.5,
        over(vqa(pretrained), vqa(written)),
    ),
    Claim(
        "vlp-class-input",
        paper,
        "region classes as input over classes as pretext",
        "Table 6, CC val",
        CIDER,
        4.8,
        over(caption(pretrained), caption(pretext)),
        note="here after fine-tuning; the paper scores pre-training",
    ),
    Claim(
        "vlp-faster",
        paper,
        "pre-training speeds fine-tuning: its gain is larger after few steps",
        "Figure 1",
        CIDER,
        None,
        gain_over((caption(pretrained, *soon), caption(None, *soon)), (caption(pretrained), caption(None))),
    ),
    Claim("vlp-scst", paper, "SCST raises CIDEr", "Tables 2 and 3", CIDER, 12.4, study="scst_unified_vlp"),
    Claim(
        "vlp-small-sets",
        paper,
        "small sets gain most",
        "Table 2, Flickr30k over COCO",
        CIDER,
        8.0,
        gain_over((caption(pretrained), caption(None)), (caption(pretrained, *many), caption(None, *many))),
    ),
]
