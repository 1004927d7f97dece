"""Claims of TDEN (Li et al., AAAI 2021, arXiv 2101.11562)."""

from __future__ import annotations

from experiments.claims.arms import LONGER, Arm, Stage
from experiments.claims.claim import ACCURACY, CIDER, IMAGE_R1, Q_A, Claim, over

paper, small = "TDEN", "tden/small"


def row(number: int) -> Stage:
    return Stage(f"{small}/pretrain/table-2-row-{number}")


def tuned(task: str, start: Stage | None) -> Arm:
    return Arm(Stage(f"{small}/{task}", after=start), task)


def claim(
    name: str,
    says: str,
    source: str,
    task: str,
    differ: float,
    better: Stage | None,
    worse: Stage | None,
    told: str = "",
) -> Claim:
    score = {"caption": CIDER, "vqa": ACCURACY, "retrieval": IMAGE_R1}[task]
    rewarded = "the paper's captioner is taught by SCST too" if task == "caption" else ""
    arms = over(tuned(task, better), tuned(task, worse))
    return Claim(
        f"tden-{name}-{task}", paper, says, source, score, differ, arms, note="; ".join(filter(None, (told, rewarded)))
    )


one, two = "Table 1", "Table 2"
sizes = "1.0, 1.2 and 1.8 M parameters in one stream, two, and decoupled; Two-Pass-A in all"
twice = "A and B read each batch twice, as in the paper"
shapes = {name: Stage(f"{small}/pretrain/{name}") for name in ("single-stream", "two-stream")} | {"decoupled": row(6)}
encoder, unified = Stage("vl-bert/small/pretrain"), Stage("unified-vlp/small/pretrain")
CLAIMS: list[Claim] = [
    claim("pretrained", "pre-training helps", one, "caption", 5.2, row(6), None),
    claim("pretrained", "pre-training helps", one, "vqa", 2.7, row(6), None),
    claim("pretrained", "pre-training helps", one, "retrieval", 8.0, row(6), None),
    *(
        claim(
            f"{better}-over-{worse}", f"{better} over {worse}", one, task, differ, shapes[better], shapes[worse], sizes
        )
        for better, worse, task, differ in (
            ("decoupled", "two-stream", "caption", 3.8),
            ("decoupled", "two-stream", "vqa", 1.6),
            ("two-stream", "single-stream", "caption", 1.0),
            ("two-stream", "single-stream", "vqa", 0.2),
        )
    ),
    claim(
        "joint", "encoder and decoder trained together over apart", two, "caption", 1.4, row(5), row(2), "row 5 over 2"
    ),
    claim(
        "joint",
        "encoder and decoder trained together over apart",
        two,
        "vqa",
        0.2,
        row(5),
        row(1),
        "row 5 over 1, whose decoder is first taught with the questions",
    ),
    claim("ism-early", "ISM before the two meet helps", two, "caption", 0.6, row(5), row(3)),
    claim("ism-early", "ISM before the two meet helps", two, "retrieval", 1.9, row(5), row(3)),
    claim(
        "ism-late",
        "ISM after they meet hurts",
        two,
        "caption",
        1.5,
        row(3),
        row(4),
        "half of row 4's pairs are wrong, and of those nothing is masked or written",
    ),
    claim("two-pass", "two passes help", two, "caption", 1.0, row(6), row(5), twice),
    claim("two-pass", "two passes help", two, "vqa", 0.4, row(6), row(5), twice),
    claim("two-pass-b", "two passes help, scheme B", two, "caption", 0.6, row(7), row(5), twice),
    claim("two-pass-c", "two passes help, scheme C", two, "caption", 0.6, row(8), row(5)),
    claim("a-over-c", "Two-Pass-A over C", two, "caption", 0.4, row(6), row(8), twice),
    *(
        Claim(
            f"tden-encoder-over-shared-{task}",
            paper,
            f"a pure encoder (VL-BERT) over a shared one ({shared}) on {task.upper()}",
            one,
            score,
            differ,
            over(Arm(encoder.then(f"vl-bert/small/{task}", small=own), task), worse),
            note="two systems, which differ in more than that"
            + ("; the paper's QA->R differs by -0.5" if task == "vcr" else ""),
        )
        for task, shared, score, differ, own, worse in (
            (
                "vqa",
                "Unified VLP",
                ACCURACY,
                0.7,
                LONGER,
                Arm(unified.then("unified-vlp/small/vqa", small=LONGER), "vqa"),
            ),
            ("vcr", "TDEN's single-stream", Q_A, 0.5, (), tuned("vcr", shapes["single-stream"])),
        )
    ),
]
