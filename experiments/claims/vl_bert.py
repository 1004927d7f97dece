"""Claims of VL-BERT (Su et al., ICLR 2020, arXiv 1908.08530)."""

from __future__ import annotations

from experiments.claims.arms import Arm, Stage
from experiments.claims.claim import ACCURACY, Q_A, Claim, over

paper, small = "VL-BERT", "vl-bert/small"
pretrained = Stage(f"{small}/pretrain")
related = Stage(f"{small}/pretrain", ("objectives.relation=1",))
with_text = Stage(f"{small}/text-too", ("data.text=TEXT",))


def tuned(task: str, start: Stage | None, *settings: str, store: str = "detected") -> Arm:
    name = f"{small}/{task}"
    last = start.then(name, *settings, store=store) if start else Stage(name, settings, store=store)
    return Arm(last, task)


CLAIMS: list[Claim] = [
    Claim(
        "vlbert-vcr",
        paper,
        "pre-training helps VCR little",
        "Table 2, val Q->A",
        Q_A,
        0.2,
        over(tuned("vcr", pretrained), tuned("vcr", None)),
    ),
    Claim(
        "vlbert-vqa",
        paper,
        "pre-training helps VQA some",
        "Table 3, test-dev",
        ACCURACY,
        0.9,
        over(tuned("vqa", pretrained), tuned("vqa", None)),
    ),
    Claim(
        "vlbert-referring",
        paper,
        "pre-training helps referring expressions most",
        "Table 4, val, detected",
        ACCURACY,
        5.9,
        over(tuned("referring", pretrained), tuned("referring", None)),
    ),
    Claim(
        "vlbert-words-hurt-vcr",
        paper,
        "masked words beside VCR's loss hurt it",
        "section 4.2.1",
        Q_A,
        None,
        over(tuned("vcr", pretrained), tuned("vcr", pretrained, "objectives.words=1")),
    ),
    Claim(
        "vlbert-true-boxes",
        paper,
        "true boxes over detected ones",
        "Table 4, val",
        ACCURACY,
        6.6,
        over(tuned("referring", None, store="true"), tuned("referring", None)),
    ),
    Claim(
        "vlbert-relation-hurts",
        paper,
        "the relation loss of pre-training hurts",
        "section 3.3 (ICLR version)",
        ACCURACY,
        None,
        over(tuned("vqa", pretrained), tuned("vqa", related)),
    ),
    Claim(
        "vlbert-text",
        paper,
        "text beside pairs helps",
        "section 3.3 (ICLR version)",
        ACCURACY,
        None,
        over(tuned("vqa", with_text), tuned("vqa", pretrained)),
    ),
    Claim(
        "vlbert-end-to-end",
        paper,
        "the network that reads pixels learns too, over one that is frozen",
        "ICLR version, Table 4",
        ACCURACY,
        None,
        study="end_to_end",
    ),
]
