"""`finetune` and `pretrain` train a model. `recipe` returns a recipe.

`register` adds a system, a task or a recipe.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any

from diptych.api.arguments import check_training, python_errors
from diptych.api.job import AnyPath, Data, Options, finetuning, pretraining
from diptych.api.mapped import Mapped
from diptych.api.run import Run
from diptych.inference.open import folder_or
from diptych.runtime.arguments import at_home, check_type
from diptych.runtime.devices import torch_unchanged
from diptych.runtime.errors import RecipeError
from diptych.runtime.plugins import load_plugins
from diptych.systems import RECIPES, STAGED, SYSTEMS, add_system, add_task, find_stages
from diptych.systems.preset import Preset
from diptych.systems.recipe import Recipe
from diptych.systems.stages import Stages
from diptych.systems.system import System
from diptych.tasks import TASKS, TaskSpec
from diptych.training.trainer import OnLog

Settings = Mapping[str, Any] | Sequence[str] | None
_registered: set[tuple[str, str]] = set()  # (kind, name) of each entry that `register` added


@python_errors
@torch_unchanged()
def finetune(
    task: str, data: Data, model: Any = None, *, recipe: str | Recipe | None = None, out: AnyPath | None = None,
    epochs: float | None = None, steps: int | None = None, batch_size: int | None = None, lr: float | None = None,
    patience: int | None = None, seed: int | None = None, detector: AnyPath | Mapped | None = None,
    features: AnyPath | None = None, on_log: OnLog | None = None, settings: Settings = None,
    without_images: bool = False,
) -> Run:  # fmt: skip
    """Train a model on a task and return the run.

    A second call with the same arguments returns the finished run. A run that is stopped by Ctrl-C is saved, and a
    second call resumes it.

    Args:
        task: name such as caption or vqa.
        data: a `Dataset`, a store, or a path that `Dataset.read` takes. If the data is not a store, its regions are
        extracted first with `detector` (default: the model's detector), or are read from `features`.
        model: the model to start from, as a folder, name on the hub, loaded model or run; None: random weights.
        recipe: a name, or a recipe that `diptych.recipe` returned; default: SYSTEM/small/TASK of the model's system.
        out: folder of the run; default: runs/TASK-HASH, with a hash of recipe, data and model.
        epochs: number of passes over the training records; pass either `epochs` or `steps`.
        batch_size: number of samples per step.
        lr: highest learning rate.
        patience: the run stops after this number of validations without a better score.
        settings: further keys of the recipe, such as {"optimizer.warmup_steps": 100}.
        without_images: train a blind baseline, with blank regions (data.images=false).
        on_log: called with a dict for each log line (step, total, lr, losses/NAME, validation/NAME, ...). If the
        function returns False, the training stops and keeps its best weights.

    Raises RecipeError, DataError or CheckpointError before anything is written. Raises TrainingError if training fails,
    and Stopped after Ctrl-C.
    """
    check_type("task", task, str, "the name of a task, such as 'caption'", RecipeError)
    check_type("recipe", recipe, (str, Recipe, type(None)), "the name of a recipe or a Recipe", RecipeError)
    if model is None and recipe is None:
        raise RecipeError(
            f"found neither a recipe nor a model; pass model=..., or recipe='SYSTEM/small/{task}' to start "
            f"from random weights (`diptych recipes {task}` lists them)"
        )
    check_type("without_images", without_images, bool, "True or False", RecipeError)
    given = {**locals(), "detector": folder_or(detector)}
    check_training(given)
    changed = _assignments(settings, steps, batch_size, lr, patience, seed) + ["data.images=false"] * without_images
    options = _options(out, epochs, changed, given["detector"], features)
    return finetuning(task, data, model, recipe, options).run(on_log)


@python_errors
@torch_unchanged()
def pretrain(
    data: Data | Mapping[str, Data], *, recipe: str | Recipe | Stages, model: Any = None, out: AnyPath | None = None,
    epochs: float | None = None, steps: int | None = None, batch_size: int | None = None, lr: float | None = None,
    patience: int | None = None, seed: int | None = None, detector: AnyPath | Mapped | None = None,
    features: AnyPath | None = None, on_log: OnLog | None = None, settings: Settings = None,
) -> Run:  # fmt: skip
    """Pre-train a model on images and captions, and return the run.

    Arguments and errors are as in `finetune`. `data` may be a dict of data sets by name. The split `train` of each data
    set then gets the name of the data set. In a recipe with several stages, `steps` and `epochs` apply to each stage.
    """
    check_type("recipe", recipe, (str, Recipe, Stages), "the name of a recipe, a Recipe or Stages", RecipeError)
    given = {**locals(), "detector": folder_or(detector)}
    check_training(given)
    changed = _assignments(settings, steps, batch_size, lr, patience, seed)
    return pretraining(data, recipe, model, _options(out, epochs, changed, given["detector"], features)).run(on_log)


@python_errors
def recipe(
    name: str, *, steps: int | None = None, batch_size: int | None = None, lr: float | None = None,
    patience: int | None = None, seed: int | None = None, settings: Settings = None,
) -> Recipe | Stages:  # fmt: skip
    """Return the recipe `name` with changed settings; `Stages` if it has several stages.

    `diptych recipes` lists all names. Raises RecipeError for an unknown name or key, and suggests the nearest one.
    """
    check_type("name", name, str, "the name of a recipe; `diptych recipes` lists all", RecipeError)
    check_training(locals())
    load_plugins()
    stages = find_stages(name, _assignments(settings, steps, batch_size, lr, patience, seed))
    return stages.recipes[0] if len(stages.recipes) == 1 else stages


def register(
    *, system: System | None = None, task: TaskSpec | None = None, recipe: Preset | Recipe | None = None
) -> None:
    """Add a system, a task or a recipe in this process, such as in a notebook.

    Packages use an entry point instead. A second call with the same name replaces the entry. Raises RecipeError for a
    name that Diptych or a package already uses.
    """
    load_plugins()
    if isinstance(recipe, Recipe):
        fields: Any = {name: value for name, value in recipe if name != "name"}
        recipe = Preset(recipe.name, "Registered in this process.", fields)
    if system is None and task is None and recipe is None:
        raise RecipeError("register: found nothing, expected system=, task= or recipe=")
    known = {"system": SYSTEMS.keys(), "task": TASKS.keys(), "recipe": RECIPES.keys() | STAGED.keys()}
    given = {"system": system, "task": task, "recipe": recipe}
    kinds: dict[str, tuple[type, ...]] = {"system": (System,), "task": (TaskSpec,), "recipe": (Recipe, Preset)}
    for kind, entry in given.items():
        check_type(kind, entry, (*kinds[kind], type(None)), f"a {kinds[kind][0].__name__}", RecipeError)
        if entry is not None and entry.name in known[kind] and (kind, entry.name) not in _registered:
            raise RecipeError(f"a {kind} named {entry.name} exists already; choose another name for yours")
    for kind, entry in given.items():
        match entry:
            case System():
                add_system(entry)
            case TaskSpec():
                add_task(entry)
            case Preset():
                RECIPES[entry.name] = entry
        if entry is not None:
            _registered.add((kind, entry.name))


def _assignments(
    settings: Settings, steps: int | None, batch: int | None, lr: float | None, patience: int | None, seed: int | None
) -> list[str]:
    """Return the given arguments, followed by `settings`, as assignments KEY=VALUE to keys of the recipe.

    Raises RecipeError for a duplicate key.
    """
    training = {"steps": steps, "batch": batch, "patience": patience, "seed": seed}
    whole = {name: value if value is None else operator.index(value) for name, value in training.items()}
    rate = lr if lr is None else float(lr)  # a plain float, because JSON cannot encode numpy's numbers
    given: dict[str, Any] = {f"training.{name}": value for name, value in whole.items()} | {"optimizer.lr": rate}
    named, more = _keyed(given), _keyed(settings) if isinstance(settings, Mapping) else [*(settings or ())]
    for key in (one.partition("=")[0] for one in more):
        if given.get(key) is not None:
            raise RecipeError(f"{key} is set twice, by its argument and by settings; pass one of the two")
    return [*named, *more]


def _keyed(values: Mapping[str, Any]) -> list[str]:
    paths = {key: at_home(value) if isinstance(value, str) else value for key, value in values.items()}
    return [f"{key}={json.dumps(value, default=str)}" for key, value in paths.items() if value is not None]


def _options(
    out: AnyPath | None, epochs: float | None, settings: list[str], detector: AnyPath | None, features: AnyPath | None
) -> Options:
    return Options(out, epochs, settings, None if detector is None else at_home(os.fspath(detector)), features)
