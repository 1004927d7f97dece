"""A recipe with a small model, and toy records on which it can overfit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import one_hot

from diptych.core import Batch, Question, Record, Regions, Sample, Task, collate
from diptych.data.store.tokens import Tokens
from diptych.models import ModelConfig, SystemModel
from diptych.objectives import Schedule
from diptych.runs.words import words_of
from diptych.runtime.configs import derive
from diptych.runtime.plugins import load_plugins
from diptych.systems import SYSTEMS, Recipe, find_recipe
from diptych.tasks import TaskSpec, find_task
from diptych.tasks.run import predict_records

KINDS, FEATURES = 4, 6  # a toy region has one of 4 classes, and 6 feature values
SIZES = {
    "width": 32,
    "heads": 2,
    "ffn": 64,
    "max_regions": 5,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "init_std": 0.1,
}
LAYERS = 2  # each encoder or decoder is cut to at most this number of layers


def toy_regions(count: int, seed: int = 0) -> Regions:
    """Return `count` regions with random boxes in fractions of the image.

    The class of a region can be inferred from its features.
    """
    random = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=random) * 0.5
    kinds = torch.randint(0, KINDS, (count,), generator=random)
    return Regions(
        boxes=torch.cat([corner, corner + 0.1 + torch.rand(count, 2, generator=random) * 0.4], 1),
        scores=torch.rand(count, generator=random),
        size=(100, 80),
        classes=one_hot(kinds, KINDS).float() * 0.9 + 0.025,
        features=one_hot(kinds, FEATURES).float() + 0.1 * torch.rand(count, FEATURES, generator=random),
    )


# Eight images with different captions. The question is always the same, so the answer depends on the image.
_WORDS = ("dog", "bird", "tree", "person")
NAMES = tuple(f"{first} {second}" for first in _WORDS for second in _WORDS)[:8]
EIGHT = tuple(
    Record(
        f"p{number}",
        captions=(f"the {name}",),
        questions=(Question(f"p{number}/0", "what does it do", (name,)),),
        regions=toy_regions(1 + number % 5, seed=number),
    )
    for number, name in enumerate(NAMES)
)


def small(model: ModelConfig, shape: Mapping[str, Any]) -> ModelConfig:
    """Return a model's configuration with sizes for tests. `shape`: name -> value of settings to change in addition."""
    layers = {name: min(value, LAYERS) for name, value in model if name.endswith("layers")}
    return derive(model, **{**SIZES, **layers, **shape})


@dataclass(frozen=True)
class Case:
    """A recipe with a small model, its objectives, and its training records and samples."""

    recipe: Recipe
    spec: TaskSpec
    task: Task
    tokens: Tokens
    model: SystemModel
    schedule: Schedule
    records: Sequence[Record]
    samples: list[Sample]

    @classmethod
    def of(
        cls,
        recipe: Recipe | str,
        records: Sequence[Record] = EIGHT,
        tokens: Tokens | None = None,
        schedule: Schedule | None = None,
        shape: Mapping[str, Any] | None = None,
    ) -> Case:
        """Make a case from a recipe or its name.

        `tokens`: by default a vocabulary of the records' words. `schedule`: by default the recipe's objectives.
        `shape`: changes settings of the model.
        """
        load_plugins()
        recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
        spec, system = find_task(recipe.task), SYSTEMS[recipe.system]
        tokens = tokens or Tokens.train([text for record in records for text in words_of(record)])
        schedule = schedule or recipe.objectives.schedule(tokens.vocabulary)
        learn = spec.training.answers
        answers = None if learn is None else replace(learn(iter(records), 1, recipe.data.answers_most), task=spec.name)
        task = recipe.task_with(tokens, answers, spec)
        features, classes = sizes(records)
        config = system.resolved(
            **small(recipe.model, shape or {}).fitted(whole=False).model_dump(),
            vocabulary=tokens.vocabulary,
            feature_size=features,
            classes=classes,
            answers=0 if answers is None else len(answers.names),
        )
        torch.manual_seed(0)
        model = system.model(config, {"word", *schedule.heads})
        samples = [replace(sample, regions=record.regions) for record in records for sample in task.samples(record)]
        return cls(recipe, spec, task, tokens, model, schedule, records, samples)

    def questions(self) -> Batch:
        """Return the task's queries for all records as a batch."""
        return collate([replace(q, regions=r.regions) for r in self.records for q in self.task.queries(r)])

    def predictions(self) -> list[dict[str, Any]]:
        """Return the task's prediction for each query of all records."""
        # With batches of 3, queries of the same group are in different batches.
        predicted = predict_records(self.task, self.model.eval(), list(self.records), batch_size=3)
        self.model.train()
        return predicted

    def scores(self) -> dict[str, float]:
        """Return the task's scores on all records."""
        return self.task.score(self.predictions(), self.records)


def sizes(records: Iterable[Record]) -> tuple[int, int]:
    """Return the number of feature values and the number of classes of the records' regions."""
    regions = next(record.regions for record in records if record.regions is not None)
    assert regions.features is not None, "the records need regions with features"
    return regions.features.shape[1], 0 if regions.classes is None else regions.classes.shape[1]
