"""Claims of XGPT (Xia et al., 2020, arXiv 2003.01473)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import CIDER, IMAGE_R1, Claim, gain_over, over

paper, small = "XGPT", "xgpt/small"
text = Stage(f"{small}/text", ("data.text=TEXT",))


def out_of(row: int) -> Stage:
    return text.then(f"{small}/pretrain/table-2-row-{row}")


def in_domain(row: int) -> Stage:
    """From the row of the stage before with the same tasks."""
    own = ("data.split=train", "data.records=300")
    return out_of(row - 4).then(f"{small}/in-domain/table-2-row-{row}", *own)


def caption(start: Stage | None, *settings: str, recipe: str = "caption") -> Arm:
    name = f"{small}/{recipe}"
    return Arm(start.then(name, *settings) if start else Stage(name, settings), "caption")


many = ("data.records=1000",)
table_2, structures = "Table 2, COCO", "Table 3"
single, multi = (Stage(f"{small}/pretrain/table-4-{masks}") for masks in ("single", "multi"))
CLAIMS: list[Claim] = [
    Claim(
        "xgpt-pairs-over-text",
        paper,
        "image-text over text-only pre-training",
        "Table 1, COCO",
        CIDER,
        7.1,
        over(caption(out_of(5)), caption(text)),
    ),
    *(
        Claim(
            f"xgpt-{name}",
            paper,
            f"{name.upper()} beside captioning helps",
            table_2,
            CIDER,
            difference,
            over(caption(out_of(row)), caption(out_of(1))),
        )
        for name, row, difference in (("imlm", 2, 1.3), ("ida", 3, 1.7), ("tifg", 4, 0.9))
    ),
    Claim(
        "xgpt-ida-over-imlm",
        paper,
        "IDA helps more than IMLM",
        table_2,
        CIDER,
        0.4,
        over(caption(out_of(3)), caption(out_of(2))),
    ),
    Claim(
        "xgpt-ida-over-tifg",
        paper,
        "IDA helps more than TIFG",
        table_2,
        CIDER,
        0.8,
        over(caption(out_of(3)), caption(out_of(4))),
    ),
    Claim(
        "xgpt-all-three",
        paper,
        "all three together over the best alone",
        table_2,
        CIDER,
        0.2,
        over(caption(out_of(5)), caption(out_of(3))),
    ),
    Claim(
        "xgpt-in-domain",
        paper,
        "an in-domain stage helps",
        table_2,
        CIDER,
        1.8,
        over(caption(in_domain(9)), caption(out_of(5))),
    ),
    Claim(
        "xgpt-shared",
        paper,
        "shared over unshared encoder and decoder",
        structures,
        CIDER,
        1.9,
        over(caption(None, recipe="caption/table-3-encdec-share"), caption(None, recipe="caption/table-3-encdec")),
    ),
    Claim(
        "xgpt-decoder",
        paper,
        "shared over an encoder alone",
        structures,
        CIDER,
        0.6,
        over(caption(None, recipe="caption/table-3-encdec-share"), caption(None, recipe="caption/table-3-enc")),
    ),
    Claim(
        "xgpt-single-mask",
        paper,
        "one [MASK] a span over one a word",
        "Table 4",
        CIDER,
        0.3,
        over(caption(single), caption(multi)),
    ),
    Claim(
        "xgpt-augmentation",
        paper,
        "written captions help retrieval",
        "Table 5, R@1",
        IMAGE_R1,
        2.2,
        study="captions_as_data",
    ),
    Claim(
        "xgpt-few-labels",
        paper,
        "the gain is larger where labels are few",
        "Table 1, Flickr30k over COCO",
        CIDER,
        10.8,
        gain_over((caption(out_of(5)), caption(text)), (caption(out_of(5), *many), caption(text, *many))),
    ),
]
