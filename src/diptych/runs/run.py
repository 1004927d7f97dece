"""From a recipe and a store to a model folder: what `pretrain`, `finetune` and `demo` share."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import nn

from diptych.core import Record, Task
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store
from diptych.models import SystemModel
from diptych.models.decoding import DecodingOptions
from diptych.models.system import NETWORK
from diptych.models.weights import digest, load_into
from diptych.objectives import Schedule
from diptych.runs.folder import INNER, ModelFolder
from diptych.runs.prepare import Plan, in_split, keep_tokens, plan
from diptych.runs.starts import begin, begin_network
from diptych.runs.tasks import pixels_of, task_of
from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.runtime.progress import bar, tell
from diptych.runtime.terminal import make_console
from diptych.runtime.weight_files import read_weights
from diptych.systems.recipe import Recipe, claim, claimed
from diptych.tasks.caption import Captioning
from diptych.tasks.run import ask
from diptych.tasks.spec import LIKELIHOOD, Start
from diptych.training import Result, TrainingConfig, train
from diptych.training.checkpoint import steps_in
from diptych.training.trainer import CHECKPOINTS

LIKELIHOOD_BATCHES = 20
PIXELS = ("pixels_shorter", "pixels_longer", "pixels_colours")  # how pictures are read, in DataConfig


@dataclass(frozen=True)
class Run:
    model: ModelFolder
    result: Result


def run(
    recipe: Recipe, store: Store, out: Path, start: ModelFolder | None = None, console: Console | None = None
) -> Run:
    """Train by the recipe, from scratch or from `start`, and write `out/model`; called again, it goes on."""
    console = console or make_console()
    chosen = plan(recipe, store, out, start)
    torch.manual_seed(recipe.training.seed)
    model = chosen.architecture.build()
    chosen.schedule.check(model.provides, recipe.system)
    if start is not None:
        for fresh in _begin_from(model, start):
            tell(console, fresh)
        if chosen.spec.training.begin is not None:
            chosen.spec.training.begin(chosen.task, model.heads, Start(start.model.heads, start.answers))
    begun = bool(steps_in(out / CHECKPOINTS))  # all weights come from there: what it began as need not be there still
    if recipe.init is not None and start is None and not begun:
        console.print(f"{recipe.init}: {begin(model, recipe.system, recipe.init).lines()[-1]}")
    if recipe.network_init is not None and not begun:
        report = begin_network(model, recipe.system, recipe.network_init, recipe.data.pixels_colours)
        console.print(f"{recipe.network_init}: {report.lines()[-1]}")
    batches, validate = chosen.batches(), _validation(chosen, console)
    for note in (*_lengthened(recipe, out), *chosen.notes(), *chosen.left_out(batches)):
        tell(console, note)

    def take_folder() -> None:
        claim(out, recipe)
        keep_tokens(chosen.tokens, out)

    result = train(
        model,
        chosen.schedule,
        batches,
        optimizer=recipe.optimizer,
        training=recipe.training if validate else _without_validation(recipe.training),
        folder=out,
        validate=validate,
        score=chosen.spec.training.watched if validate else None,
        fingerprint=fingerprint(recipe, start),
        console=console,
        begin=take_folder,
    )
    if batches.corrupt:
        console.print(_left_out(batches.corrupt), markup=False)
    return Run(_saved(chosen, result, out), result)


def _begin_from(model: SystemModel, start: ModelFolder) -> Iterator[str]:
    """The weights of `start`; of an imported model, heads for other classes or answers than these start fresh."""
    tensors, wanted = start.model.state_dict(), model.state_dict()
    if start.untrained:
        other = [name for name in wanted if name in tensors and tensors[name].shape != wanted[name].shape]
        if body := [name for name in other if not name.startswith("heads.")]:
            raise CheckpointError(
                f"{start.folder} was made for {start.architecture.config.classes} classes of regions, the store has "
                f"another number, and {body[0]} depends on it; extract with a detector of so many classes, or give "
                "your own regions: diptych extract DATA OUT --detector given --features PATH"
            )
        # What each answer of an imported head means is not in the file.
        other += [name for name in tensors if name.startswith("heads.answer.") and start.answers is None]
        tensors = {name: value for name, value in tensors.items() if name not in other}
        if fresh := sorted({name.split(".")[1] for name in other if name in wanted}):
            yield f"{start.folder}: its heads for other classes or answers start fresh: {', '.join(fresh)}"
    for name, old in tensors.items() if model.config.grows else ():
        new = wanted.get(name, old)
        if len(new.shape) > 1 and new.shape[1:] == old.shape[1:] and len(new) > len(old):
            tensors[name] = torch.cat([old.to(new), new[len(old) :]])
            yield f"{start.folder}: {name} grows from {len(old)} to {len(new)} rows; new rows begin as in a new model"
    load_into(model, tensors)


def _saved(chosen: Plan, result: Result, out: Path) -> ModelFolder:
    """The final weights as a model folder; with several processes the first one writes it."""
    model, start = chosen.architecture.build(), chosen.start
    load_into(model, read_weights(result.weights), complete=True)
    detector = chosen.store.detector()
    made = ModelFolder(
        folder=out / INNER,
        model=model.eval(),
        architecture=chosen.architecture,
        tokens=chosen.tokens,
        contract=chosen.store.contract,
        recipe=chosen.recipe,
        answers=chosen.answers,
        detector=detector or (start.detector if start is not None else None),
        validation=next((dict(v.scores) for v in result.history if v.step == result.best_step), None),
    )
    return made.save(out / INNER) if os.environ.get("RANK", "0") == "0" else made


def fit_to(recipe: Recipe, start: ModelFolder) -> Recipe:
    """The recipe for the sizes and switches of the model that it continues, which is of the same system."""
    if recipe.system != start.architecture.system:
        raise RecipeError(
            f"{recipe.name} trains {recipe.system}, and {start.folder} holds a model of {start.architecture.system}; "
            "give a model and a recipe of one system"
        )
    config = start.architecture.config
    shape = {name: getattr(config, name) for name in type(recipe.model).model_fields}
    shape |= {name: max(shape[name], getattr(recipe.model, name)) for name in recipe.model.grows}
    model = type(recipe.model)(**shape)
    fitted = derive(recipe, model=model, init=None if recipe.wants_init else recipe.init)
    return _with_network_settings(fitted, start.recipe, model.reads_pixels)


def fit_named(recipe: Recipe, start: ModelFolder) -> tuple[Recipe, str]:
    """A recipe that was asked for by its name: `fit_to`, but with its own number of regions, and what else no weight
    depends on; and what of its model it loses, as a line or as nothing.

    Raises RecipeError where it names a structure that `start` does not have.
    """
    fitted = fit_to(recipe, start)
    own = recipe.model.of_the_run | (frozenset() if recipe.model.regions_fixed else {"max_regions"})
    fitted = derive(fitted, model={name: getattr(recipe.model, name) for name in own})
    named, kept = recipe.model.model_dump(), fitted.model.model_dump()
    lost = [name for name in named if named[name] != kept[name] and "given" not in (named[name], kept[name])]
    fields = type(recipe.model).model_fields
    asked = [name for name in lost if name in recipe.model.structural and named[name] != fields[name].default]
    if asked:
        raise RecipeError(
            f"{recipe.name} is of another model than {start.folder}: "
            + "; ".join(f"model.{name}={named[name]}, and {kept[name]} there" for name in asked)
            + "; give a model that was built so, or another recipe (`diptych recipes` lists all); --model none begins "
            "by the recipe from the beginning"
        )
    dropped = ", ".join(f"{name} {kept[name]} (recipe: {named[name]})" for name in lost)
    return fitted, f"{start.folder} goes on as it was built: {dropped}" if dropped else ""


def _with_network_settings(recipe: Recipe, before: Recipe | None, reads_pixels: bool) -> Recipe:
    """Pictures are read as the network has learnt to read them, at its share of the rate; or, on stored features,
    nothing is asked of a network."""
    groups, data, objectives = recipe.optimizer.lr_multipliers, recipe.data, recipe.objectives
    if not reads_pixels:
        groups = {prefix: share for prefix, share in groups.items() if prefix not in _of_network(groups)}
        objectives = objectives.without_pixels()
    elif before is not None:
        groups = {**_of_network(before.optimizer.lr_multipliers), **groups}
        data = derive(data, **{name: getattr(before.data, name) for name in PIXELS})
    return derive(recipe, optimizer={"lr_multipliers": groups}, data=data, objectives=objectives)


def _of_network(groups: dict[str, float]) -> dict[str, float]:
    return {prefix: share for prefix, share in groups.items() if prefix.startswith(NETWORK)}


class Predictions(NamedTuple):
    """What a model says of each record of a split that can be read."""

    predictions: list[dict[str, Any]]
    records: list[Record]
    task: Task
    damaged: tuple[str, ...] = ()  # keys of the others


def evaluate(model: ModelFolder, store: Store, split: str) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Its predictions on a split, and their scores."""
    predictions, records, task, _ = predict(model, store, split)
    return predictions, task.score(predictions, records)


def predict(
    model: ModelFolder,
    store: Store,
    split: str,
    name: str | None = None,
    decoding: DecodingOptions | None = None,
    console: Console | None = None,
) -> Predictions:
    """What it says of each record of a split; damaged ones are left out, as in training, and named.

    `name` is a task that it has learnt beside the one that it was trained for last, `decoding` how captions are
    written, where that is not the recipe's way; a `console` gets a progress bar. Raises RecipeError and DataError.
    """
    task = task_of(model, name)
    if decoding is not None and isinstance(task, Captioning):
        task = replace(task, decoding=decoding)
    return predict_by(task, model, store, split, console)


def predict_by(task: Task, model: ModelFolder, store: Store, split: str, console: Console | None = None) -> Predictions:
    """Likewise, what it says when a task asks that was made otherwise than its recipe says."""
    model.accept(store.contract, store.folder)
    with_pixels = _pixel_reader(model.recipe) if model.recipe is not None else None
    most = model.architecture.config.max_regions
    records, damaged = _readable(store, in_split(store, split, "--split"), most, with_pixels)
    with bar("pictures", console or Console(quiet=True)) as progress:
        asking = progress.add_task("predicting", total=len(records))

        def read() -> Iterator[Record]:
            for record in records:
                yield record
                progress.advance(asking)

        predictions = ask(task, model.model, read(), with_pixels=with_pixels)
    return Predictions(predictions, records, task, damaged)


def _left_out(keys: Collection[str], of: str = "training") -> str:
    return f"{len(keys)} damaged records were left out of {of}: {', '.join(sorted(keys)[:5])}"


def _readable(
    store: Store, indices: Sequence[int], most: int, with_pixels: Callable[[Record], Record] | None
) -> tuple[list[Record], tuple[str, ...]]:
    """Records with their best regions, without pixels; and the keys of those that cannot be read."""
    records: list[Record] = []
    damaged: list[DataError] = []
    for index in indices:
        try:
            record = store.record(index).best_regions(most)
            if with_pixels is not None:
                with_pixels(record)
            records.append(record)
        except DataError as error:
            damaged.append(error)
    if not records:
        raise damaged[0]
    return records, tuple(error.key or str(error) for error in damaged)


def _pixel_reader(recipe: Recipe) -> Callable[[Record], Record] | None:
    pixels = pixels_of(recipe)
    return None if pixels is None else pixels.added_to


def _validation(chosen: Plan, console: Console) -> Callable[[nn.Module, int], dict[str, float]] | None:
    recipe, store, task = chosen.recipe, chosen.store, chosen.task
    if recipe.training.validate_every is None or not chosen.held_out:
        return None
    spec = chosen.spec
    if spec.pretrains:
        batches = chosen.held_out_batches()

        def likelihood(module: nn.Module, _: int) -> dict[str, float]:
            before = len(batches.corrupt)
            found = _likelihood(module, batches, chosen.schedule.first)
            if len(batches.corrupt) > before:
                console.print(_left_out(batches.corrupt, "validation"), markup=False)
            return {LIKELIHOOD: found}

        return likelihood
    with_pixels = _pixel_reader(recipe)
    records, damaged = _readable(store, chosen.held_out, recipe.model.max_regions, with_pixels)
    if damaged:
        console.print(_left_out(damaged, "validation"), markup=False)
    if spec.training.validation is not None:
        task, records = spec.training.validation(task, records)
    return lambda module, _: task.score(ask(task, module, records, with_pixels=with_pixels), records)


@torch.no_grad()
def _likelihood(module: nn.Module, batches: Loader, schedule: Schedule) -> float:
    """Mean log-likelihood of what the first objective asks, over the same held-out batches each time."""
    was_training, device = module.training, next(module.parameters()).device
    module.eval()
    total = count = 0.0
    for step in range(min(batches.steps_per_epoch, LIKELIHOOD_BATCHES)):
        batch, update = batches.at(step, 0, 1).to(device), schedule.at(step)
        name = update.objectives[0].name
        total += float(next(update.losses(module, batch))[name])
        count += float(update.counts(batch)[name])
    module.train(was_training)
    return -total / max(count, 1)


def _without_validation(training: TrainingConfig) -> TrainingConfig:
    return derive(training, validate_every=None, patience=None, average_best=1)


def fingerprint(recipe: Recipe, start: ModelFolder | None) -> str:
    """What a run must share with its checkpoints: the recipe, and the weights it began from."""
    bound = json.dumps(recipe.bound, sort_keys=True)
    return digest(start.model, bound) if start is not None else hashlib.sha256(bound.encode()).hexdigest()


def _lengthened(recipe: Recipe, out: Path) -> Iterator[str]:
    """What is said of a run that goes on for longer than it was meant to."""
    before = Recipe.load(out).training.steps if claimed(out, recipe) else recipe.training.steps
    if recipe.training.steps > before:
        yield (
            f"{out}: goes on to {recipe.training.steps} steps, was {before}; learning rates "
            + (
                "stay as they are"
                if recipe.optimizer.schedule not in ("linear", "cosine")
                else f"now follow the {recipe.optimizer.schedule} schedule of {recipe.training.steps} steps, so the "
                "result is not that of a run that had them from the beginning"
            )
        )
