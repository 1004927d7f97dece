"""Eight pictures and their eight texts told apart: all systems that read pairs, and each of ImageBERT's losses.

Learnt from the same groups at each step, every text against every picture, until next to nothing is left to learn; then
all 64 pairs are ranked. (`test_overfit.py` draws the wrong pairs anew, and asks for the ranking alone.)
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import torch

from diptych.core import Sample, collate
from diptych.metrics.retrieval import recalls, retrieval_ranks
from diptych.models import SystemModel
from diptych.runs.tasks import make_task
from diptych.systems import RECIPES, SYSTEMS
from diptych.tasks.matching import match_scores
from diptych.tasks.retrieval import RetrievalObjectives
from diptych.tasks.two_towers import TwoTowerRetrieval
from tests.tasks.test_overfit import EIGHT, SMALLER, TOKENS, built

PAIRS = tuple(name for name in SMALLER if name != "tden")


def told(system: str) -> list[Sample]:
    task = make_task(RECIPES[f"{system}/small/retrieval"](), TOKENS, None)
    return [replace(sample, regions=record.regions) for record in EIGHT for sample in task.samples(record)]


def learn(model: SystemModel, kind: RetrievalObjectives, samples: Sequence[Sample], steps: int, enough: float) -> float:
    """The greatest of the losses a thing predicted, when all of them are below `enough` or the steps are over."""
    update = kind.schedule(TOKENS.vocabulary).at(0)
    batch = collate(update.prepare(list(samples), Random(0)))
    counts = update.counts(batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    worst = float("inf")
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min((step + 1) / 20, 1 - step / steps)
        means = {name: loss / counts[name] for name, loss in next(update.losses(model.train(), batch)).items()}
        worst = max(float(mean.detach()) for mean in means.values())
        if worst < enough:
            break
        optimizer.zero_grad()
        sum(means.values(), torch.zeros(())).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return worst


def found(model: SystemModel, samples: Sequence[Sample]) -> dict[str, float]:
    """All 64 pairs: a row a picture, a column a text."""
    with torch.no_grad():
        table = [
            match_scores(model.eval(), collate([replace(s, regions=p.regions) for s in samples])).tolist()
            for p in samples
        ]
    return recalls(retrieval_ranks(table, list(range(len(samples)))))


def model_of(system: str) -> SystemModel:
    return built(RECIPES[f"{system}/small/retrieval"]())


@pytest.mark.slow
@pytest.mark.parametrize("system", PAIRS)
def test_pairs_are_told_apart(system: str) -> None:
    model, samples = model_of(system), told(system)
    assert len(samples) == 8
    assert learn(model, RetrievalObjectives(pairs=8, negatives="captions"), samples, 800, 0.01) < 0.02
    reached = found(model, samples)
    assert reached["text retrieval R@1"] == reached["image retrieval R@1"] == 1


@pytest.mark.slow
def test_vectors_are_told_apart() -> None:
    """TDEN's vectors of pictures and of texts: the triplet over all wrong pairs of the batch."""
    recipe = RECIPES["tden/small/retrieval"]()
    model, samples = built(recipe), told("tden")
    update = recipe.objectives.schedule(TOKENS.vocabulary).at(0)
    batch = collate(update.prepare(samples, Random(0)))
    (name,), counts = update.counts(batch), update.counts(batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loss = torch.tensor(torch.inf)
    for _ in range(400):
        loss = next(update.losses(model.train(), batch))[name] / counts[name]
        if loss < 0.001:
            break
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss < 0.005
    task = make_task(recipe, TOKENS, None)
    assert isinstance(task, TwoTowerRetrieval)
    from diptych.tasks.run import ask

    scores = task.score(ask(task, model.eval(), EIGHT), EIGHT)
    assert scores["text retrieval R@1"] == scores["image retrieval R@1"] == 100


def test_every_system_searches() -> None:
    assert {*PAIRS, "tden"} == set(SYSTEMS)
