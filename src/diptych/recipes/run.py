"""From a recipe and a store to a model folder: what `pretrain`, `finetune` and `demo` share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console
from torch import nn

from diptych.core import Record, Task
from diptych.errors import DataError, RecipeError
from diptych.loading.loader import Loader
from diptych.loading.store import Store, iterate
from diptych.loading.tokens import Tokens
from diptych.models import UnifiedVLPConfig
from diptych.models.official import start_from
from diptych.models.weights import load_into
from diptych.objectives import Schedule
from diptych.recipes.folder import EYES, INNER, Architecture, ModelFolder
from diptych.recipes.recipe import Recipe, claim
from diptych.tasks.caption import Captioning
from diptych.tasks.run import ask
from diptych.tasks.vqa import Answers, QuestionAnswering
from diptych.training.trainer import Result, train

SCORES = {"caption": "CIDEr", "vqa": "accuracy", "pretrain": "likelihood"}  # what validation wants to rise
VOCABULARY_SIZE = 8000


@dataclass(frozen=True)
class Run:
    model: ModelFolder
    result: Result


def run(
    recipe: Recipe, store: Store, out: Path, start: ModelFolder | None = None, console: Console | None = None
) -> Run:
    """Train by the recipe, from scratch or from `start`, and write `out/model`; called again, it goes on."""
    console = console or Console(stderr=True)
    if recipe.init is not None and (start is not None or recipe.data.vocabulary is None):
        raise RecipeError(
            "init begins from weights that have a vocabulary of their own: give data.vocabulary, their vocab.txt"
            if start is None
            else "init and a model to start from exclude each other: give one"
        )
    claim(out, recipe)
    if start is not None:
        start.accept(store.contract, store.folder)
    tokens = start.tokens if start is not None else _tokens(store, out, recipe)
    answers = _answers(recipe, store, start)
    task = make_task(recipe, tokens, answers)
    schedule = recipe.objectives.schedule(tokens.vocabulary)
    architecture = _architecture(recipe, store, tokens, schedule, answers)
    torch.manual_seed(recipe.training.seed)
    model = architecture.build()
    schedule.check(model.provides, recipe.system)
    if start is not None:
        load_into(model, start.model.state_dict())
    elif recipe.init is not None:
        console.print(start_from(model, recipe.init).lines()[-1] + f" from {recipe.init}")
    chosen = _choose(recipe, store)
    most = recipe.model.max_regions
    batches = Loader(store, chosen, task.samples, schedule, recipe.training.batch, recipe.training.seed, most)
    validate = _validation(recipe, store, task, schedule)
    result = train(
        model,
        schedule,
        batches,
        optimizer=recipe.optimizer,
        training=recipe.training if validate else _without_validation(recipe),
        folder=out,
        validate=validate,
        score=SCORES[recipe.task] if validate else None,
        fingerprint=_fingerprint(recipe, start),
        console=console,
    )
    if batches.corrupt:
        named = ", ".join(sorted(batches.corrupt)[:5])
        console.print(f"{len(batches.corrupt)} damaged records were left out: {named}")
    eyes = store.folder / EYES if (store.folder / EYES).is_dir() else start.eyes if start is not None else None
    made = ModelFolder(out / INNER, model.eval(), architecture, tokens, store.contract, recipe, answers, eyes)
    return Run(made.save(out / INNER) if int(os.environ.get("RANK", "0")) == 0 else made, result)


def fit_to(recipe: Recipe, start: ModelFolder) -> Recipe:
    """The recipe for the sizes and switches of the model that it continues."""
    config = start.architecture.config
    shape = {name: getattr(config, name) for name in type(recipe.model).model_fields}
    return recipe.model_copy(update={"model": type(recipe.model)(**shape)})


def evaluate(model: ModelFolder, store: Store, split: str) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Its predictions on a split, and their scores."""
    if model.recipe is None:
        raise RecipeError(f"{model.folder} was imported and knows no task yet; fine-tune it: diptych finetune caption")
    model.accept(store.contract, store.folder)
    records = [store.record(index) for index in _in_split(store, split, "--split")]
    task = make_task(model.recipe, model.tokens, model.answers)
    predictions = ask(task, model.model, records)
    return predictions, task.score(predictions, records)


def make_task(recipe: Recipe, tokens: Tokens, answers: Answers | None) -> Task:
    if recipe.task == "vqa":
        if answers is None:
            raise RecipeError("this model has no list of answers: fine-tune it first, `diptych finetune vqa`")
        return QuestionAnswering(tokens, answers, recipe.data.max_words)
    return Captioning(tokens, recipe.decoding, recipe.data.max_words)


def _tokens(store: Store, out: Path, recipe: Recipe) -> Tokens:
    """Learnt once, and kept beside the run: another set of records would give other ids."""
    if recipe.data.vocabulary is not None:
        return Tokens.from_vocabulary(Path(recipe.data.vocabulary), recipe.data.lowercase)
    if (out / "tokenizer.json").is_file():
        return Tokens.load(out)
    texts = [text for record in iterate(store, recipe.data.split) for text in words_of(record)]
    tokens = Tokens.train(texts, VOCABULARY_SIZE)
    tokens.save(out)
    return tokens


def words_of(record: Record) -> list[str]:
    """All that is said about a picture and that a vocabulary should know."""
    return [*record.captions, *(q.text for q in record.questions)]


def _answers(recipe: Recipe, store: Store, start: ModelFolder | None) -> Answers | None:
    if recipe.task != "vqa":
        return start.answers if start is not None else None
    if start is not None and start.answers is not None:
        return start.answers
    return Answers.of(iterate(store, recipe.data.split))


def _architecture(
    recipe: Recipe, store: Store, tokens: Tokens, schedule: Schedule, answers: Answers | None
) -> Architecture:
    needed = recipe.data.max_words + 1
    config = UnifiedVLPConfig(
        **recipe.model.model_dump(),
        vocabulary=tokens.vocabulary,
        feature_size=store.contract.feature_size,
        classes=len(store.contract.class_names),
        answers=len(answers.names) if answers is not None else 0,
    )
    if config.max_text < needed:
        raise RecipeError(
            f"model.positions={config.positions} leaves {config.max_text} places for words, and data.max_words="
            f"{recipe.data.max_words} wants {needed}; raise model.positions or lower data.max_words"
        )
    # The word head stays through every task, so that a fine-tuned model can still be trained on words.
    heads = {"word", *schedule.heads} | ({"answer"} if answers is not None else set())
    return Architecture(system=recipe.system, config=config, heads=tuple(sorted(heads)))


def _choose(recipe: Recipe, store: Store) -> list[int]:
    there = _in_split(store, recipe.data.split, "--set data.split=")
    if recipe.data.records is None or recipe.data.records >= len(there):
        return there
    return sorted(Random(f"{recipe.training.seed}/records").sample(there, recipe.data.records))


def _in_split(store: Store, split: str, option: str) -> list[int]:
    there = store.split(split)
    if not there:
        known = ", ".join(f"{name} ({count})" for name, count in store.splits.items()) or "none at all"
        raise DataError(f"{store.folder} has no records in split {split!r}; it has {known}; choose with {option}")
    return there


def _validation(
    recipe: Recipe, store: Store, task: Task, schedule: Schedule
) -> Callable[[nn.Module, int], dict[str, float]] | None:
    if recipe.training.validate_every is None:
        return None
    there = store.split(recipe.data.validation)[: recipe.data.validation_records]
    if not there:
        return None
    if recipe.task == "pretrain":
        held_out = Loader(store, there, task.samples, schedule, 64, seed=0, max_regions=recipe.model.max_regions)
        return lambda module, _: {"likelihood": -_loss(module, held_out, schedule)}
    records = [store.record(index) for index in there]
    return lambda module, _: task.score(ask(task, module, records), records)


@torch.no_grad()
def _loss(module: nn.Module, batches: Loader, schedule: Schedule) -> float:
    """Of the first objective, per thing predicted, over one pass of held-out batches, the same ones each time."""
    was_training, device = module.training, next(module.parameters()).device
    module.eval()
    name = schedule.objectives[0].name
    total = count = 0.0
    for step in range(min(batches.steps_per_epoch, 20)):
        batch, update = batches.at(step, 0, 1).to(device), schedule.at(step)
        total += float(next(update.losses(module, batch))[name])
        count += float(update.counts(batch)[name])
    module.train(was_training)
    return total / max(count, 1)


def _without_validation(recipe: Recipe) -> Any:
    return recipe.training.model_copy(update={"validate_every": None, "patience": None, "average_best": 1})


def _fingerprint(recipe: Recipe, start: ModelFolder | None) -> str:
    """What a run must share with its checkpoints: the recipe, and the weights it began from."""
    digest = hashlib.sha256(recipe.model_dump_json().encode())
    if start is not None:
        for name, tensor in sorted(start.model.state_dict().items()):
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
