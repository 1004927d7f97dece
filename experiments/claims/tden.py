"""Claims of TDEN (Li et al., AAAI 2021, arXiv 2101.11562)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import ACCURACY, CIDER, IMAGE_R1, Q_A, Claim, over

paper, small = "TDEN", "tden/small"


def row(number: int) -> Stage:
    return Stage(f"{small}/pretrain/table-2-row-{number}")


def shape(structure: str) -> Stage:
    return Stage(f"{small}/pretrain/{structure}")


def tuned(task: str, start: Stage | None) -> Arm:
    name = f"{small}/{task}"
    return Arm(start.then(name) if start else Stage(name), task)


def claim(
    name: str, says: str, source: str, task: str, differ: float, better: Stage | None, worse: Stage | None
) -> Claim:
    score = {"caption": CIDER, "vqa": ACCURACY, "vcr": Q_A, "retrieval": IMAGE_R1}[task]
    return Claim(
        f"tden-{name}-{task}", paper, says, source, score, differ, over(tuned(task, better), tuned(task, worse))
    )


one, two = "Table 1", "Table 2"
encoder = Stage("vl-bert/small/pretrain").then("vl-bert/small/vqa")
shared = Stage("unified-vlp/small/pretrain").then("unified-vlp/small/vqa")
CLAIMS: list[Claim] = [
    claim("pretrained", "pre-training helps", one, "caption", 5.2, row(6), None),
    claim("pretrained", "pre-training helps", one, "vqa", 2.7, row(6), None),
    claim("pretrained", "pre-training helps", one, "retrieval", 8.0, row(6), None),
    *(
        claim(f"{better}-over-{worse}", f"{better} over {worse}", one, task, differ, shape(better), shape(worse))
        for better, worse, task, differ in (
            ("decoupled", "two-stream", "caption", 3.8),
            ("decoupled", "two-stream", "vqa", 1.6),
            ("two-stream", "single-stream", "caption", 1.0),
            ("two-stream", "single-stream", "vqa", 0.2),
        )
    ),
    claim("joint", "encoder and decoder trained together over apart", two, "caption", 1.4, row(5), row(2)),
    claim("joint", "encoder and decoder trained together over apart", two, "vqa", 0.2, row(5), row(1)),
    claim("ism-early", "ISM before the two meet helps", two, "caption", 0.6, row(5), row(3)),
    claim("ism-early", "ISM before the two meet helps", two, "retrieval", 1.9, row(5), row(3)),
    claim("ism-late", "ISM after they meet hurts", two, "caption", 1.5, row(3), row(4)),
    claim("two-pass", "two passes help", two, "caption", 1.0, row(6), row(5)),
    claim("two-pass", "two passes help", two, "vqa", 0.4, row(6), row(5)),
    claim("a-over-c", "Two-Pass-A is at least C", two, "caption", 0.4, row(6), row(8)),
    Claim(
        "tden-encoder-over-shared-vqa",
        paper,
        "a pure encoder (VL-BERT) over a shared one (Unified VLP) on VQA",
        one,
        ACCURACY,
        0.7,
        over(Arm(encoder, "vqa"), Arm(shared, "vqa")),
    ),
]
