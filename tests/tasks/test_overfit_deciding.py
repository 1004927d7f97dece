"""Every filled cell of systems x tasks: eight samples learnt by heart, and answered rightly."""

from random import Random
from typing import Any

import pytest
import torch

from diptych.core import collate
from diptych.models import MODELS, SystemModel
from diptych.recipes import RECIPES, Recipe
from diptych.recipes.deciding import TASKS
from diptych.recipes.tasks import SCORES, make_task
from diptych.tasks.run import ask
from tests import toy
from tests.deciding import RECORDS, TOKENS

SIZES = {
    "width": 32,
    "heads": 2,
    "ffn": 64,
    "max_regions": 5,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "init_std": 0.1,
}
# A system joins by a line: what makes its small shape smaller.
SMALLER: dict[str, dict[str, Any]] = {
    "unified-vlp": {"layers": 2},
    "vl-bert": {"layers": 2, "coordinates": 4},
    "image-bert": {"layers": 2},
    "tden": {"object_layers": 1, "sentence_layers": 1, "cross_layers": 2, "decoder_layers": 1, "similarity_width": 16},
    "xgpt": {"layers": 2},
}


def built(recipe: Recipe) -> SystemModel:
    """The recipe's model, smaller."""
    system = MODELS[recipe.system]
    shape = recipe.model.model_copy(update={**SIZES, **SMALLER[recipe.system]}).fitted(whole=False)
    config = system.config(
        **shape.model_dump(), vocabulary=TOKENS.vocabulary, feature_size=6, classes=toy.KINDS, answers=0
    )
    torch.manual_seed(0)
    return system.model(config, recipe.objectives.schedule(TOKENS.vocabulary).heads)


@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize("system", SMALLER)
def test_eight_samples_are_learnt_by_heart(system: str, task_name: str) -> None:
    recipe = RECIPES[f"{system}/small/{task_name}"]()
    task, update = make_task(recipe, TOKENS, None), recipe.objectives.schedule(TOKENS.vocabulary).at(0)
    samples = [sample for record in RECORDS for sample in task.samples(record)]
    assert len(samples) == 8
    model, name = built(recipe), update.objectives[0].name
    batch = collate(update.prepare(samples, Random(0)))
    count, optimizer = update.counts(batch)[name], torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.tensor(torch.inf)
    for _ in range(400):
        loss = next(update.losses(model, batch))[name] / count
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss < 0.01:
            break
    assert loss < 0.02
    said = ask(task, model.eval(), RECORDS, batch_size=3)  # groups of four are cut apart
    assert task.score(said, RECORDS)[SCORES[task_name]] == 100


def test_every_system_is_here() -> None:
    assert set(MODELS) == set(SMALLER)
