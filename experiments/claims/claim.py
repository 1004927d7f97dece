"""A paper's claim that one model is better than another, by how much, and the arms here that test it.

A claim is a sum of weighted arms, `+1` what should be better and `-1` what it is compared with; of a gain that should
be larger in one place than in another, four. `paper` is the paper's own difference in the same score, where it has one.
Of some claims a study of its own has the arms: its committed results have a score by arm and seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.claims.arms import Arm

CIDER, ACCURACY, Q_A = "CIDEr", "accuracy", "Q->A"
IMAGE_R1 = "image retrieval R@1"
IMAGE_R10 = "image retrieval R@10"


@dataclass(frozen=True)
class Claim:
    """`terms` are weighted arms. Or `study` names committed results, and `rounds` what of them is weighed: weight,
    arm and score."""

    id: str
    system: str
    says: str
    source: str
    score: str = CIDER
    paper: float | None = None
    terms: tuple[tuple[float, Arm], ...] = ()
    study: str = ""
    rounds: tuple[tuple[float, str, str], ...] = ()
    note: str = ""


def over(better: Arm, worse: Arm) -> tuple[tuple[float, Arm], ...]:
    return (1.0, better), (-1.0, worse)


def gain_over(gain: tuple[Arm, Arm], other: tuple[Arm, Arm]) -> tuple[tuple[float, Arm], ...]:
    """The first gain (better, worse) compared with the second."""
    return (1.0, gain[0]), (-1.0, gain[1]), (-1.0, other[0]), (1.0, other[1])
