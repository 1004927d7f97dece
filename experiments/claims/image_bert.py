"""Claims of ImageBERT (Qi et al., 2020, arXiv 2001.07966)."""

from __future__ import annotations

from diptych.recipes import find_recipe
from experiments.claims.arms import SHARE, Arm, Stage
from experiments.claims.claim import IMAGE_R1, IMAGE_R10, Claim, over

paper, small = "ImageBERT", "image-bert/small"
noisy = Stage(f"{small}/pretrain")
clean = Stage(f"{small}/pretrain", ("data.split=train",))
twice = str(round(2 * find_recipe(f"{small}/pretrain").training.steps * SHARE))
both = Stage(f"{small}/pretrain", ("data.split=web+train", f"training.steps={twice}"))
staged = noisy.then(f"{small}/pretrain", "data.split=train")
without_mrfr = Stage(f"{small}/pretrain", ("objectives.region_features=0",))
few = Stage(f"{small}/pretrain", ("model.max_regions=4",))
without_whole = Stage(f"{small}/pretrain", ("model.whole_region=false",))


def zero(start: Stage) -> Arm:
    return Arm(start, "retrieval")


def tuned(start: Stage, *settings: str) -> Arm:
    return Arm(start.then(f"{small}/retrieval", *settings), "retrieval")


losses = {
    "all": ("objectives.choice=1", "objectives.triplet=1"),
    "choice": ("objectives.binary=0", "objectives.choice=1"),
    "triplet": ("objectives.binary=0", "objectives.triplet=1"),
}
table_3, table_4 = "Table 3, image R@1", "Table 4, image R@1"
CLAIMS: list[Claim] = [
    Claim(
        "imagebert-stages",
        paper,
        "stages over the union",
        table_3,
        IMAGE_R10,
        4.1,
        over(zero(staged), zero(both)),
        note="the paper's difference is of R@1",
    ),
    Claim(
        "imagebert-noisy-first",
        paper,
        "a noisy first stage helps",
        table_3,
        IMAGE_R10,
        5.9,
        over(zero(staged), zero(clean)),
        note="as above",
    ),
    Claim(
        "imagebert-union-worse",
        paper,
        "the union is worse than the clean set alone",
        table_3,
        IMAGE_R10,
        2.0,
        over(zero(clean), zero(both)),
        note="as above",
    ),
    Claim(
        "imagebert-mrfr",
        paper,
        "MRFR helps zero-shot",
        table_4,
        IMAGE_R10,
        1.7,
        over(zero(noisy), zero(without_mrfr)),
        note="as above",
    ),
    Claim(
        "imagebert-whole",
        paper,
        "the whole picture's feature is mixed",
        table_4,
        IMAGE_R10,
        0.8,
        over(zero(noisy), zero(without_whole)),
        note="as above; R@1 higher, R@5 lower; of another network there, here the detector's own",
    ),
    Claim(
        "imagebert-regions",
        paper,
        "many regions over few",
        table_4,
        IMAGE_R1,
        4.3,
        over(tuned(noisy), tuned(few, "model.max_regions=4")),
        note="here 32 at most over 4; there 100 over 36",
    ),
    *(
        Claim(
            f"imagebert-binary-over-{name}",
            paper,
            f"binary loss alone over {name}",
            table_4,
            IMAGE_R1,
            difference,
            over(tuned(noisy), tuned(noisy, *losses[name])),
        )
        for name, difference in (("all", 1.2), ("choice", 2.5), ("triplet", 2.5))
    ),
    Claim(
        "imagebert-tuned",
        paper,
        "fine-tuned over zero-shot",
        "Tables 1 and 2, Flickr30k",
        IMAGE_R1,
        18.8,
        over(tuned(noisy), zero(noisy)),
    ),
]
