"""Claims of ImageBERT (Qi et al., 2020, arXiv 2001.07966)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import IMAGE_R1, IMAGE_R10, Claim, over

paper, small = "ImageBERT", "image-bert/small"
noisy = Stage(f"{small}/pretrain")
# Of equal work: two stages, one and a half times the steps on the clean set alone, and as many on the union.
staged = noisy.then(f"{small}/pretrain", "data.split=train", share=0.5)
clean, both = (Stage(f"{small}/pretrain", (f"data.split={split}",), share=1.5) for split in ("train", "web+train"))
without_mrfr = Stage(f"{small}/pretrain", ("objectives.region_features=0",))
few = Stage(f"{small}/pretrain", ("model.max_regions=36",), small=("model.max_regions=4",))
whole, without_whole = (Stage(f"{small}/pretrain", (f"model.whole_region={have}",)) for have in ("given", "false"))


def zero(start: Stage) -> Arm:
    return Arm(start, "retrieval")


def tuned(start: Stage, *settings: str, regions: bool = False) -> Arm:
    """`regions`: as few as it was pre-trained with."""
    own = (few.settings, few.small) if regions else ((), ())
    return Arm(Stage(f"{small}/retrieval", (*settings, *own[0]), start, small=own[1]), "retrieval")


losses = {
    "all": ("objectives.choice=1", "objectives.triplet=1"),
    "choice": ("objectives.binary=0", "objectives.choice=1"),
    "triplet": ("objectives.binary=0", "objectives.triplet=1"),
}
table_3, table_4 = "Table 3", "Table 4"
own_domain = "here the clean set is of the test's own domain, and larger than the noisy one (30,000 captions, 10,000)"
CLAIMS: list[Claim] = [
    Claim(
        "imagebert-stages",
        paper,
        "stages over the union",
        table_3,
        IMAGE_R10,
        4.1,
        over(zero(staged), zero(both)),
        note=own_domain,
    ),
    Claim(
        "imagebert-noisy-first",
        paper,
        "a noisy first stage helps",
        table_3,
        IMAGE_R10,
        2.3,
        over(zero(staged), zero(clean)),
        note="as above; the same number of steps",
    ),
    Claim(
        "imagebert-union-worse",
        paper,
        "the union is worse than the clean set alone",
        table_3,
        IMAGE_R10,
        1.8,
        over(zero(clean), zero(both)),
        note="as above",
    ),
    Claim(
        "imagebert-mrfr",
        paper,
        "MRFR helps zero-shot",
        table_4,
        IMAGE_R10,
        0.9,
        over(zero(noisy), zero(without_mrfr)),
    ),
    *(
        Claim(
            f"imagebert-whole-{name}",
            paper,
            f"the whole picture's feature {does} {score.split()[-1]}",
            table_4,
            score,
            differ,
            over(zero(better), zero(worse)),
            note="of another network there, here the detector's own",
        )
        for name, does, score, differ, better, worse in (
            ("r1", "raises", IMAGE_R1, 0.8, whole, without_whole),
            ("r10", "lowers", IMAGE_R10, 0.3, without_whole, whole),
        )
    ),
    Claim(
        "imagebert-regions",
        paper,
        "many regions over few",
        table_4,
        IMAGE_R1,
        4.3,
        over(tuned(noisy), tuned(few, regions=True)),
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
