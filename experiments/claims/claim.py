"""A paper's claim that one model is better than another, and the arms that test it here.

A claim is a weighted sum of the scores of arms: `+1` for the arm that should be better, `-1` for the other. A claim
that one gain exceeds another has four arms. `paper` is the paper's own difference in the same score, if it gives one.
Some claims use the committed results of another study instead (`study`).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.claims.arms import Arm

CIDER, ACCURACY, Q_A = "CIDEr", "accuracy", "Q->A"
IMAGE_R1 = "image retrieval R@1"
IMAGE_R10 = "image retrieval R@10"


@dataclass(frozen=True)
class Claim:
    """A claim with its `terms`: pairs of a weight and an arm. Or `study` names a file of committed results, and
    `rounds` lists the terms as (weight, arm, score)."""

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
    """Return the terms of the claim that `gain` exceeds `other`. Each gain is a pair (better arm, worse arm)."""
    return (1.0, gain[0]), (-1.0, gain[1]), (-1.0, other[0]), (1.0, other[1])
