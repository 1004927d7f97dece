"""Train a model by a recipe on a store, and predict with it. `pretrain`, `finetune` and `demo` share this."""

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
from diptych.core.shares import FEWEST
from diptych.data.leakage import SeenImages, prints_of
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store
from diptych.models import SystemModel
from diptych.models.decoding import DecodingOptions
from diptych.models.system import NETWORK
from diptych.models.weights import digest, load_into
from diptych.objectives import Schedule
from diptych.runs.familiarity import measured
from diptych.runs.folder import CALIBRATED, INNER, UNCALIBRATED, VALIDATED, ModelFolder
from diptych.runs.initialisation import initialise, initialise_network
from diptych.runs.prepare import Plan, in_split, keep_tokens, plan
from diptych.runs.run_folder import RunFolder
from diptych.runs.tasks import pixels_of, shown_to, task_of
from diptych.runtime.configs import derive
from diptych.runtime.devices import torch_unchanged
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.runtime.progress import bar, tell
from diptych.runtime.terminal import make_console
from diptych.runtime.weight_files import read_weights
from diptych.systems.recipe import Recipe
from diptych.tasks.answers import Answers
from diptych.tasks.calibration import Calibration
from diptych.tasks.caption import Captioning
from diptych.tasks.run import predict_records
from diptych.tasks.spec import LIKELIHOOD, Start
from diptych.training import Result, TrainingConfig, train
from diptych.training.checkpoint import steps_in
from diptych.training.trainer import CHECKPOINTS, OnLog

LIKELIHOOD_BATCHES = 20
PIXELS = ("pixels_shorter", "pixels_longer", "pixels_colours")  # settings of DataConfig for reading images


@dataclass(frozen=True)
class FinishedRun:
    """The model and the training result of a run."""

    model: ModelFolder
    result: Result


def run(
    recipe: Recipe, store: Store, out: Path, start: ModelFolder | None = None, console: Console | None = None,
    on_log: OnLog | None = None,
) -> FinishedRun:  # fmt: skip
    """Train by the recipe, from scratch or from `start`, and write `out/model`. Called again, it resumes.

    `on_log` is called with each log line, and ends the run by returning False (`train`). Raises RecipeError, DataError
    or CheckpointError before any file is written.
    """
    return run_in(RunFolder.open(out, recipe), store, start, console, on_log)


@torch_unchanged()
def run_in(
    folder: RunFolder, store: Store, start: ModelFolder | None = None, console: Console | None = None,
    on_log: OnLog | None = None,
) -> FinishedRun:  # fmt: skip
    """Like `run`, in a folder that was opened."""
    console, recipe, out = console or make_console(), folder.recipe, folder.path
    chosen = plan(folder, store, start)
    torch.manual_seed(recipe.training.seed)
    model = chosen.architecture.build()
    chosen.schedule.check(model.provides, recipe.system, type(model))
    if start is not None:
        for fresh in _load_start(model, start, chosen.answers):
            tell(console, fresh)
        if chosen.spec.training.begin is not None:
            chosen.spec.training.begin(chosen.task, model.heads, Start(start.model.heads, start.answers))
    begun = bool(steps_in(out / CHECKPOINTS))  # checkpoints have all weights, so `init` may be gone
    if recipe.init is not None and start is None and not begun:
        console.print(f"{recipe.init}: {initialise(model, recipe.system, recipe.init).lines()[-1]}")
    if recipe.network_init is not None and not begun:
        report = initialise_network(model, recipe.system, recipe.network_init, recipe.data.pixels_colours)
        console.print(f"{recipe.network_init}: {report.lines()[-1]}")
    batches, validate = chosen.batches(), _validation(chosen, console)
    for note in (*folder.notes(), *chosen.notes(), *chosen.left_out(batches)):
        tell(console, note)

    def take_folder() -> None:
        folder.claim()
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
        on_log=on_log,
    )
    if batches.corrupt:
        console.print(_left_out(batches.corrupt), markup=False)
    return FinishedRun(_saved(chosen, result, out, console), result)


def _load_start(model: SystemModel, start: ModelFolder, answers: Answers | None) -> Iterator[str]:
    """Load the weights of `start`. Heads of an imported model for other classes or answers start fresh.

    So do those of another task's `answers`.

    Yields a note about each head or embedding that does.
    """
    tensors, wanted = start.model.state_dict(), model.state_dict()
    if start.untrained:
        other = [name for name in wanted if name in tensors and tensors[name].shape != wanted[name].shape]
        if body := [name for name in other if not name.startswith("heads.")]:
            raise CheckpointError(
                f"{start.folder} was made for {start.architecture.config.classes} classes of regions, the store has "
                f"another number, and {body[0]} depends on it; extract with a detector of as many classes, or give "
                "your own regions: diptych extract DATA --out OUT --detector given --features PATH"
            )
        # The checkpoint does not name the answers of its head.
        other += [name for name in tensors if name.startswith("heads.answer.") and start.answers is None]
        tensors = {name: value for name, value in tensors.items() if name not in other}
        if fresh := sorted({name.split(".")[1] for name in other if name in wanted}):
            yield f"{start.folder}: its heads for other classes or answers start fresh: {', '.join(fresh)}"
    if answers is not None and start.answers is not None and answers.task != start.answers.task:
        sized = {name for name, old in tensors.items() if name in wanted and old.shape != wanted[name].shape}
        tensors = {
            name: old
            for name, old in tensors.items()
            if not name.startswith("heads.answer.") and not (name.startswith("heads.") and name in sized)
        }
    for name, old in tensors.items() if model.config.grows else ():
        new = wanted.get(name, old)
        if len(new.shape) > 1 and new.shape[1:] == old.shape[1:] and len(new) > len(old):
            tensors[name] = torch.cat([old.to(new), new[len(old) :]])
            yield f"{start.folder}: {name} grows from {len(old)} to {len(new)} rows; new rows start as in a new model"
    load_into(model, tensors)


def _saved(chosen: Plan, result: Result, out: Path, console: Console) -> ModelFolder:
    """Return the final weights as a model folder, which rank 0 writes."""
    model, start = chosen.architecture.build(), chosen.start
    load_into(model, read_weights(result.weights), complete=True)
    detector, most, validated = chosen.store.detector(), chosen.recipe.model.max_regions, len(chosen.held_out)
    scores = next((dict(v.scores) for v in result.history if v.step == result.best_step), None)
    if scores is not None and validated < FEWEST:
        scores[VALIDATED] = float(validated)
    answers, fitted = chosen.answers, _calibration(chosen, model.eval())
    if answers is not None and fitted is not None:
        answers = replace(answers, temperature=fitted.temperature)
        scores = {**(scores or {}), UNCALIBRATED: fitted.before, CALIBRATED: fitted.after}
        tell(console, f"{fitted.line} (fitted on {fitted.questions} questions of {chosen.recipe.data.validation})")
    made = ModelFolder(
        out / INNER, model, chosen.architecture, chosen.tokens, chosen.store.contract, chosen.recipe, answers,
        detector=detector or (start.detector if start is not None else None), validation=scores,
        familiarity=None
        if chosen.store.hides_images
        else measured(chosen.store, (chosen.recipe.data.split, chosen.recipe.data.validation), most)
        or (start.familiarity if start is not None else None),
    )  # fmt: skip
    if os.environ.get("RANK", "0") != "0":
        return made
    before = start.seen if start is not None else None
    seen = SeenImages.of(prints_of(chosen.store, chosen.records), before, begun=start is not None)
    return replace(made, seen=seen).save(out / INNER)


def _calibration(chosen: Plan, model: SystemModel) -> Calibration | None:
    """Fit the temperature of answers on the held-out records, where the task has one."""
    calibrate, recipe = chosen.spec.training.calibrate, chosen.recipe
    if calibrate is None or chosen.answers is None or not chosen.held_out:
        return None
    with_pixels = _pixel_reader(recipe)
    records, _ = _readable(chosen.store, chosen.held_out, recipe.model.max_regions, with_pixels)
    return calibrate(chosen.task, lambda task: predict_records(task, model, records, with_pixels=with_pixels), records)


def fit_to(recipe: Recipe, start: ModelFolder) -> Recipe:
    """Return the recipe with the sizes and settings of the model that it starts from.

    Raises RecipeError for a model of another system.
    """
    if recipe.system != start.architecture.system:
        raise RecipeError(
            f"{recipe.name} trains {recipe.system}, {start.folder} is of {start.architecture.system}; give two of one"
        )
    config = start.architecture.config
    shape = {name: getattr(config, name) for name in type(recipe.model).model_fields}
    shape |= {name: max(shape[name], getattr(recipe.model, name)) for name in recipe.model.grows}
    model = type(recipe.model)(**shape)
    fitted = derive(recipe, model=model, init=None if recipe.wants_init else recipe.init)
    return _with_network_settings(fitted, start.recipe, model.reads_pixels)


def fit_named(recipe: Recipe, start: ModelFolder) -> tuple[Recipe, str]:
    """Like `fit_to`, but keep the recipe's own settings that no weight depends on, such as the number of regions.

    Also return a line about the settings that the recipe loses, or an empty text. Raises RecipeError if it sets a
    structure that `start` does not have.
    """
    fitted = fit_to(recipe, start)
    own = recipe.model.of_the_run | (frozenset() if recipe.model.regions_fixed else {"max_regions"})
    fitted = derive(fitted, model={name: getattr(recipe.model, name) for name in own})
    named, kept = recipe.model.model_dump(), fitted.model.model_dump()
    lost = [name for name in named if named[name] != kept[name] and "given" not in (named[name], kept[name])]
    fields = type(recipe.model).model_fields
    structural = [name for name in lost if name in recipe.model.structural and named[name] != fields[name].default]
    if structural:
        raise RecipeError(
            f"{recipe.name} is of another model than {start.folder}: "
            + "; ".join(f"model.{name}={named[name]}, and {kept[name]} there" for name in structural)
            + "; give a model that was built so, or another recipe (`diptych recipes` lists them), or "
            "start with random weights: --from-scratch"
        )
    dropped = ", ".join(f"{name} {kept[name]} (recipe: {named[name]})" for name in lost)
    return fitted, f"{start.folder} keeps its architecture: {dropped}" if dropped else ""


def _with_network_settings(recipe: Recipe, before: Recipe | None, reads_pixels: bool) -> Recipe:
    """Take over the start model's settings of the network that reads pixels; without one, drop those settings."""
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
    """Predictions for each readable record of a split."""

    predictions: list[dict[str, Any]]
    records: list[Record]
    task: Task
    damaged: tuple[str, ...] = ()  # keys of unreadable records

    @property
    def scores(self) -> dict[str, float]:
        return self.task.score(self.predictions, self.records)


def predict(
    model: ModelFolder,
    store: Store,
    split: str,
    name: str | None = None,
    decoding: DecodingOptions | None = None,
    console: Console | None = None,
) -> Predictions:
    """Predict for each record of a split; damaged records are left out, as in training, and listed.

    `name`: another task that the model has learnt; `decoding`: options for captions, instead of the recipe's.
    A `console` gets a progress bar. Raises RecipeError and DataError.
    """
    task = task_of(model, name)
    if decoding is not None and isinstance(task, Captioning):
        task = replace(task, decoding=decoding)
    return predict_by(task, model, store, split, console)


def predict_by(task: Task, model: ModelFolder, store: Store, split: str, console: Console | None = None) -> Predictions:
    """Like `predict`, with a task that was not built from the model's recipe."""
    model.accept(store.contract, store.folder)
    store = shown_to(model.recipe, store)
    with_pixels = _pixel_reader(model.recipe) if model.recipe is not None else None
    most = model.architecture.config.max_regions
    records, damaged = _readable(store, in_split(store, split, "--split"), most, with_pixels)
    with bar("pictures", console or Console(quiet=True)) as progress:
        bar_task = progress.add_task("predicting", total=len(records))

        def read() -> Iterator[Record]:
            for record in records:
                yield record
                progress.advance(bar_task)

        predictions = predict_records(task, model.model, read(), with_pixels=with_pixels)
    return Predictions(predictions, records, task, damaged)


def _left_out(keys: Collection[str], of: str = "training") -> str:
    return f"{len(keys)} damaged records were left out of {of}: {', '.join(sorted(keys)[:5])}"


def _readable(
    store: Store, indices: Sequence[int], most: int, with_pixels: Callable[[Record], Record] | None
) -> tuple[list[Record], tuple[str, ...]]:
    """Return records with their best regions, without pixels, and the keys of unreadable ones.

    Raises DataError if none can be read.
    """
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

        def validate(module: nn.Module, _: int) -> dict[str, float]:
            before = len(batches.corrupt)
            likelihood = _likelihood(module, batches, chosen.schedule.first)
            if len(batches.corrupt) > before:
                console.print(_left_out(batches.corrupt, "validation"), markup=False)
            return {LIKELIHOOD: likelihood}

        return validate
    with_pixels = _pixel_reader(recipe)
    records, damaged = _readable(store, chosen.held_out, recipe.model.max_regions, with_pixels)
    if damaged:
        console.print(_left_out(damaged, "validation"), markup=False)
    if spec.training.validation is not None:
        task, records = spec.training.validation(task, records)
    return lambda module, _: task.score(predict_records(task, module, records, with_pixels=with_pixels), records)


@torch.no_grad()
def _likelihood(module: nn.Module, batches: Loader, schedule: Schedule) -> float:
    """Return the mean log-likelihood of the watched objective's targets over the same held-out batches each time."""
    was_training, device = module.training, next(module.parameters()).device
    module.eval()
    total = count = 0.0
    for step in range(min(batches.steps_per_epoch, LIKELIHOOD_BATCHES)):
        batch, update, name = batches.at(step, 0, 1).to(device), schedule.at(step), schedule.watched
        total += float(next(update.losses(module, batch))[name])
        count += float(update.counts(batch)[name])
    module.train(was_training)
    return -total / max(count, 1)


def _without_validation(training: TrainingConfig) -> TrainingConfig:
    return derive(training, validate_every=None, patience=None, average_best=1)


def fingerprint(recipe: Recipe, start: ModelFolder | None) -> str:
    """Return a digest of the recipe and the start weights, which a run must share with its checkpoints."""
    bound = json.dumps(recipe.bound, sort_keys=True)
    return digest(start.model, bound) if start is not None else hashlib.sha256(bound.encode()).hexdigest()
