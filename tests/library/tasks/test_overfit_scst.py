"""Eight captions that only the picture tells: every generator, half taught them, learns the rest by their reward."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

from diptych.core import Batch, Update, collate
from diptych.models import SystemModel
from diptych.systems import RECIPES, SYSTEMS
from diptych.tasks.rewards import FREQUENCIES, CorpusCider
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.testing import EIGHT
from tests.support.cases import case_of
from tests.support.deciding import TOKENS

pytestmark = pytest.mark.learns

GENERATORS = tuple(system for system in SYSTEMS if f"{system}/small/scst" in RECIPES)
HALF_TAUGHT = 0.5  # nats a word
MAX_WORDS = 6
Done = Callable[[list[float]], bool]


def learn(model: SystemModel, update: Update, batch: Batch, lr: float, told: str, done: Done) -> list[float]:
    """What the update tells of `told` at each step, a thing predicted, until that is done or 400 steps are."""
    optimizer, seen = torch.optim.AdamW(model.parameters(), lr=lr, fused=True), []
    for _ in range(400):
        counts, losses = update.counts(batch), next(update.losses(model, batch))
        seen.append(float(losses[told].detach() / counts[told]))
        if done(seen):
            break
        cost = next(loss / counts[name] for name, loss in losses.items() if loss.requires_grad)
        optimizer.zero_grad()
        cost.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize("system", GENERATORS)
def test_the_reward_reaches_all_there_is(system: str, tmp_path: Path) -> None:
    taught = RECIPES[f"{system}/small/caption"]()
    rewarded = RECIPES[f"{system}/small/scst"]().override(["objectives.samples=32"])
    assert isinstance(rewarded.objectives, SelfCriticalObjectives)
    references = {record.key: record.captions for record in EIGHT}
    reward = CorpusCider(TOKENS, references, counts_end=True, cache=tmp_path / FREQUENCIES)
    case = case_of(taught)
    model, samples = case.model.train(), case.samples
    telling = taught.objectives.schedule(TOKENS.vocabulary).at(0)
    ready = collate(telling.prepare(samples, Random(0)))
    learn(model, telling, ready, 3e-3, telling.objectives[0].name, lambda seen: seen[-1] < HALF_TAUGHT)

    right = [[[*TOKENS.encode(record.captions[0]), TOKENS.vocabulary.sep]] for record in EIGHT]
    update = rewarded.objectives.rewarded(TOKENS.vocabulary, reward, MAX_WORDS).at(0)
    batch = collate(update.prepare(samples, Random(0)))
    most = float(reward(batch, right).mean())
    seen = learn(model, update, batch, 1e-3, "reward", lambda seen: sum(seen[-5:]) > 5 * 0.95 * most)
    assert seen[0] < 0.5 * most
    assert sum(seen[-5:]) / 5 > 0.95 * most
