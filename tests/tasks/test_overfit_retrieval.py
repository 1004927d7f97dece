"""Eight pictures and their eight texts told apart: all systems that read pairs, and each of ImageBERT's losses.

Learnt from the same groups at each step, every text against every picture, until next to nothing is left to learn; then
all 64 pairs are ranked. (`test_overfit.py` draws the wrong pairs anew, and asks for the ranking alone.)
"""

from dataclasses import replace

import pytest
import torch

from diptych.core import collate
from diptych.metrics.retrieval import recalls, retrieval_ranks
from diptych.systems import RECIPES, SYSTEMS
from diptych.tasks.matching import match_scores
from diptych.tasks.retrieval import RetrievalObjectives
from diptych.tasks.two_towers import TwoTowerRetrieval
from diptych.testing import Case, check_overfit
from tests.deciding import TOKENS
from tests.tasks.test_overfit import case_of

PAIRS = tuple(name for name in SYSTEMS if name != "tden")


def found(case: Case) -> dict[str, float]:
    """All 64 pairs: a row a picture, a column a text."""
    with torch.no_grad():
        table = [
            match_scores(case.model.eval(), collate([replace(s, regions=p.regions) for s in case.samples])).tolist()
            for p in case.samples
        ]
    return recalls(retrieval_ranks(table, list(range(len(case.samples)))))


@pytest.mark.slow
@pytest.mark.parametrize("system", PAIRS)
def test_pairs_are_told_apart(system: str) -> None:
    every = RetrievalObjectives(pairs=8, negatives="captions").schedule(TOKENS.vocabulary)
    case = case_of(f"{system}/small/retrieval", schedule=every)
    assert len(case.samples) == 8
    check_overfit(case, 800, enough=0.02, right=lambda _: True)
    reached = found(case)
    assert reached["text retrieval R@1"] == reached["image retrieval R@1"] == 1


@pytest.mark.slow
def test_vectors_are_told_apart() -> None:
    """TDEN's vectors of pictures and of texts: the triplet over all wrong pairs of the batch."""
    case = case_of(RECIPES["tden/small/retrieval"]())
    assert isinstance(case.task, TwoTowerRetrieval)
    check_overfit(case, lr=2e-3, enough=0.005, right=lambda _: True)
    scores = case.scores()
    assert scores["text retrieval R@1"] == scores["image retrieval R@1"] == 100
