"""Claims of Unified VLP (Zhou et al., AAAI 2020, arXiv 1909.11059)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import ACCURACY, CIDER, Claim, gain_over, over

vlp, paper = "unified-vlp", "Unified VLP"
pretrained = Stage("unified-vlp/small/pretrain")
written = Stage("unified-vlp/small/pretrain", ("objectives.seq2seq=1",))
read = Stage("unified-vlp/small/pretrain", ("objectives.seq2seq=0",))
pretext = Stage("unified-vlp/small/pretrain", ("model.class_input=false", "objectives.region_class=1"))


def caption(start: Stage | None) -> Arm:
    return _caption(start, (), ())


def vqa(start: Stage | None) -> Arm:
    return Arm(Stage(f"{vlp}/small/vqa", after=start), "vqa")


SOON = 0.2  # fraction of the steps of fine-tuning


def few(start: Stage | None) -> Arm:
    """Fine-tune on as many images as Flickr30k has: 29,000, or 300 with the small recipe."""
    return _caption(start, ("data.records=29000",), ("data.records=300",))


def many(start: Stage | None) -> Arm:
    """Fine-tune on all images, for the same number of epochs as `few`."""
    return _caption(start, (), ("data.records=1000", "training.steps=1000", "training.validate_every=200"))


def soon(start: Stage | None) -> Arm:
    return _caption(start, (), ("training.validate_every=30",), SOON)


def _caption(start: Stage | None, settings: tuple[str, ...], small: tuple[str, ...], share: float = 1.0) -> Arm:
    return Arm(Stage(f"{vlp}/small/caption", settings, start, small=small, share=share), "caption")


CLAIMS: list[Claim] = [
    Claim(
        "vlp-pretrained-caption",
        paper,
        "pre-training helps captions",
        "Table 4, COCO",
        CIDER,
        4.4,
        over(caption(pretrained), caption(None)),
        note="over from scratch; 2.6 over UniLM",
    ),
    Claim(
        "vlp-pretrained-vqa",
        paper,
        "pre-training helps VQA",
        "Table 4, test-dev",
        ACCURACY,
        2.8,
        over(vqa(pretrained), vqa(None)),
        note="over from scratch; 0.9 over UniLM",
    ),
    Claim(
        "vlp-seq2seq-caption",
        paper,
        "seq2seq alone over the mix for captions",
        "Table 2, COCO",
        CIDER,
        0.8,
        over(caption(written), caption(pretrained)),
    ),
    Claim(
        "vlp-bidirectional-vqa",
        paper,
        "bidirectional alone over the mix for VQA",
        "Table 2, test-std",
        ACCURACY,
        0.6,
        over(vqa(read), vqa(pretrained)),
    ),
    Claim(
        "vlp-mix-caption",
        paper,
        "the mix over bidirectional alone for captions",
        "Table 2, COCO",
        CIDER,
        0.4,
        over(caption(pretrained), caption(read)),
    ),
    Claim(
        "vlp-mix-vqa",
        paper,
        "the mix over seq2seq alone for VQA",
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
        note="here after fine-tuning, there before; the pretext arm lacks the input and has one more loss",
    ),
    Claim(
        "vlp-faster",
        paper,
        "pre-training speeds fine-tuning: its gain is larger after few steps",
        "Figure 1",
        CIDER,
        None,
        gain_over((soon(pretrained), soon(None)), (caption(pretrained), caption(None))),
        note="60 steps, whose rate falls to 0 too, over 300; from scratch 60 teach nothing yet",
    ),
    Claim(
        "vlp-scst",
        paper,
        "SCST raises CIDEr",
        "Tables 2 and 3",
        CIDER,
        12.4,
        study="scst_unified_vlp",
        rounds=((1, "self-critical", CIDER), (-1, "cross-entropy, longer", CIDER)),
        note="here over cross-entropy of as many steps",
    ),
    Claim(
        "vlp-small-sets",
        paper,
        "small sets gain most",
        "Table 4, Flickr30k over COCO",
        CIDER,
        9.5,
        gain_over((few(pretrained), few(None)), (many(pretrained), many(None))),
        note="over from scratch; 8.0 over UniLM; here 300 scenes and 300 steps over 1,000 of either",
    ),
    Claim(
        "vlp-photographs",
        paper,
        "pre-training helps captions of photographs",
        "Table 4, Flickr30k",
        CIDER,
        13.9,
        study="flickr8k",
        rounds=((1, "pre-trained", CIDER), (-1, "from scratch", CIDER)),
        note="over from scratch; here 1,000 photographs of Flickr8k, and pre-training reads the others of train",
    ),
]
