"""Claims of XGPT (Xia et al., 2020, arXiv 2003.01473)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import CIDER, IMAGE_R1, IMAGE_R10, Claim, gain_over, over

paper, small = "XGPT", "xgpt/small"
text = Stage(f"{small}/text", ("data.text=TEXT",))


def out_of(row: int) -> Stage:
    return text.then(f"{small}/pretrain/table-2-row-{row}")


def in_domain(row: int) -> Stage:
    """Continue training from the out-of-domain row of Table 2 with the same tasks, for 11/60 of its steps at a tenth of
    its learning rate (section 5.3)."""
    name = f"{small}/in-domain/table-2-row-{row}"
    own = ("data.records=300", "training.steps=165", "optimizer.lr=2e-4")
    return out_of(row - 4).then(name, "data.split=train", small=own)


def caption(start: Stage | None) -> Arm:
    return Arm(Stage(f"{small}/caption", after=start), "caption")


def few(start: Stage) -> Arm:
    """Fine-tune on as many images as Flickr30k has: 29,000, or 300 with the small recipe."""
    own = ("data.records=300",)
    return Arm(start.then(f"{small}/caption", "data.records=29000", small=own), "caption")


def many(start: Stage) -> Arm:
    """Fine-tune on all images, for the same number of epochs as `few`."""
    own = ("data.records=1000", "training.steps=1000", "training.validate_every=200")
    return Arm(start.then(f"{small}/caption", small=own), "caption")


def structure(name: str, layers: int) -> Arm:
    """Return the arm of a row of Table 3 with `layers` small layers. One stack of 4 layers has 0.79 M parameters; an
    encoder and a decoder of 2 layers each have 0.93 M (paper: 72 M and 79 M)."""
    own = (f"model.layers={layers}",)
    return Arm(Stage(f"{small}/caption/table-3-{name}", small=own, real=f"xgpt/caption/table-3-tiny-{name}"), "caption")


table_2, structures = "Table 2, COCO", "Table 3"
single, multi = out_of(3), text.then(f"{small}/pretrain/table-4-multi")
shared, unshared, alone = structure("encdec-share", 4), structure("encdec", 2), structure("enc", 4)
WITH, WITHOUT = "people's and written captions", "people's captions alone"
CLAIMS: list[Claim] = [
    Claim(
        "xgpt-pairs-over-text",
        paper,
        "image-text over text-only pre-training",
        "Tables 1 and 2, COCO",
        CIDER,
        5.3,
        over(caption(out_of(5)), caption(text)),
    ),
    *(
        Claim(
            f"xgpt-{name}",
            paper,
            f"{name.upper()} with captioning helps",
            table_2,
            CIDER,
            difference,
            over(caption(out_of(row)), caption(out_of(1))),
            note="tasks take turns: captioning has as many steps, all have more",
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
        note="here of the 300 scenes that are labelled afterwards",
    ),
    Claim(
        "xgpt-shared",
        paper,
        "shared over unshared encoder and decoder",
        structures,
        CIDER,
        1.9,
        over(shared, unshared),
        note="from nothing; 4 layers for both, and 2 with 2: 16% more parameters (in the paper 10%, by our count)",
    ),
    Claim(
        "xgpt-decoder",
        paper,
        "shared over an encoder alone",
        structures,
        CIDER,
        0.6,
        over(shared, alone),
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
        rounds=((1, WITH, IMAGE_R1), (-1, WITHOUT, IMAGE_R1)),
    ),
    Claim(
        "xgpt-augmentation-r1-most",
        paper,
        "and R@1 gains more than R@10",
        "Table 5, R@1 over R@10",
        IMAGE_R1,
        1.8,
        study="captions_as_data",
        rounds=((1, WITH, IMAGE_R1), (-1, WITHOUT, IMAGE_R1), (-1, WITH, IMAGE_R10), (1, WITHOUT, IMAGE_R10)),
        note="here R@1 begins near 0; of 200 pictures, as above",
    ),
    Claim(
        "xgpt-few-labels",
        paper,
        "the gain is larger where labels are few",
        "Table 1, Flickr30k over COCO",
        CIDER,
        10.8,
        gain_over((few(out_of(5)), few(text)), (many(out_of(5)), many(text))),
        note="the paper's with its in-domain stage; here 300 scenes and 300 steps over 1,000 of either",
    ),
]
