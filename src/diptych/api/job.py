"""Prepare a training run (`finetuning`, `pretraining`): choose its recipe and open its data. Nothing is written."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from diptych.api.dataset import Dataset, resumable
from diptych.api.run import Run
from diptych.core import Record
from diptych.core.contract import Part
from diptych.core.folders import INNER
from diptych.data.extract.own_data import open_data, store_of
from diptych.data.store.record_json import record_to_json
from diptych.data.store.several import SeveralStores, limited, renamed
from diptych.data.store.store import Store, check_split, splits_in
from diptych.inference.open import open_folder
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.inputs import checked_inputs, files_of
from diptych.runs.reports.html import FILE
from diptych.runs.reports.page import MOST, write_evaluation
from diptych.runs.run import learner_of
from diptych.runs.run_folder import RunFolder, open_stages
from diptych.runs.stages import ON_LOG, fit_stages, run_stages
from diptych.runs.start import Start
from diptych.runtime.arguments import path_of
from diptych.runtime.configs import derive
from diptych.runtime.errors import DataError, RecipeError, counted
from diptych.runtime.files import parse_json, sha256_of, sweep, text_of, write_atomically
from diptych.runtime.outputs import taken
from diptych.runtime.plugins import load_plugins
from diptych.runtime.progress import tell
from diptych.runtime.terminal import make_console
from diptych.systems import find_recipe, find_stages
from diptych.systems.recipe import Recipe
from diptych.systems.stages import Stages
from diptych.tasks import TaskSpec, find_learnt, find_task
from diptych.tasks.spec import SAMPLED
from diptych.training.trainer import OnLog

AnyPath = str | os.PathLike[str]
Data = AnyPath | Dataset | Store
# Written when a run is finished, with a digest of the run's recipe, data and initial weights.
FINISHED = "finished.json"
FINISHED_NOTE = "finished with this recipe, data and model; set more steps"
ENDED_NOTE = "ended by on_log; the same call without on_log continues"
MOST_STEPS = 10**9  # placeholder for training.steps, until the length of an epoch is known


@dataclass(frozen=True)
class Options:
    """Options of a run: changes to its recipe, and the origin of its regions."""

    out: AnyPath | None = None
    epochs: float | None = None
    settings: Sequence[str] = ()  # changes to the recipe, as KEY=VALUE
    detector: str | None = None
    features: AnyPath | None = None
    split_seed: int = 0  # seed that divides data without splits into train, val and test
    skip_bad: bool = field(default=False, repr=False)  # if False, data with many invalid entries raises an error
    revision: str | None = field(default=None, repr=False)  # of the start model, on the hub


@dataclass(frozen=True)
class TrainingJob:
    """A prepared training run. `run` starts the training."""

    folders: tuple[RunFolder, ...]  # one folder for each training stage
    data: Mapping[str, tuple[Path, Store | list[Record]]]  # name -> (path, data); the name is "" for a single data set
    start: Start
    out: Path
    options: Options
    digest: str
    note: str

    def run(self, on_log: OnLog | None = None) -> Run:
        """Train and return the run.

        If a run with the same recipe, data and model has finished in the folder, return that run.
        """
        console = make_console()
        with taken(self.out, "run"):
            sweep(self.out)
            by_on_log = any((folder.path / ON_LOG).exists() for folder in self.folders)
            ended = self._ended() and not (by_on_log and on_log is None)
            if self.note and not ended:
                tell(console, self.note)
            with resumable():
                store = self._store(ended)
            if ended:
                for folder in self.folders:
                    checked_inputs(folder.path, folder.recipe, store)
                tell(console, f"{self.out}: already {ENDED_NOTE if by_on_log else FINISHED_NOTE}")
                return Run(self.out)
            folders = list(self.folders)
            if self.options.epochs is not None:
                folders = [self._lasting(folder, store, self.options.epochs) for folder in folders]
            run_stages(folders, store, self.start, console, on_log)
            if os.environ.get("RANK", "0") == "0":
                self._report(store, console)
                write_atomically(self.out / FINISHED, json.dumps({"digest": self.digest}).encode())
        return Run(self.out)

    def _report(self, store: Store, console: Console) -> None:
        """Write a report on the first validation images to the run's folder, if the task has been validated."""
        recipe, spec, page = self.folders[-1].recipe, find_task(self.folders[-1].recipe.task), self.out / FILE
        split, most = recipe.data.validation, MOST // 3 if spec.scoring.gallery else MOST
        if spec.pretrains or recipe.training.validate_every is None or split not in store.splits:
            return
        some, model = limited(store, {split: most, recipe.data.split: SAMPLED}), open_folder(self.out)
        try:
            scores = score_model(model, some, split)[1]
            write_evaluation(page, model, some, split, scores, ", ".join(str(path) for path, _ in self.data.values()))
        except DataError as error:  # such as questions without answers
            tell(console, f"no {FILE}: {error}")
        else:
            tell(console, f"report on {counted(some.split(split), 'images')} of {split}: {page}")

    def _store_of(self, name: str) -> Path:
        return self.out / f"store{'-' * bool(name)}{name}"

    def _ended(self) -> bool:
        with suppress(OSError, ValueError):
            return parse_json(text_of(self.out / FINISHED)) == {"digest": self.digest} and (self.out / INNER).is_dir()
        return False

    def _store(self, ended: bool) -> Store:
        """Return all data as one store, for which regions are extracted first, unless the run `ended`."""
        detector, features = self._regions
        stores = {
            name: store_of(
                opened, path, self._store_of(name), detector, make_console(), features, self.options.skip_bad, ended
            )
            for name, (path, opened) in self.data.items()
        }
        parts = frozenset[Part]().union(*(folder.recipe.reads for folder in self.folders))
        return stores[""] if "" in stores else SeveralStores(stores, parts)

    @property
    def _regions(self) -> tuple[str | None, Path | None]:
        """The name of the detector, and the path of precomputed features."""
        features = self.options.features
        return self.options.detector or self.start.source, None if features is None else path_of(features)

    def _lasting(self, folder: RunFolder, store: Store, epochs: float) -> RunFolder:
        """Return the folder with its number of steps set to `epochs` passes over the training records."""
        steps = math.ceil(epochs * learner_of(folder, store, self.start).batches().steps_per_epoch)
        return folder.lasting(derive(folder.recipe, training={"steps": steps}))


def finetuning(task: str, data: Data, model: Any, recipe: str | Recipe | None, options: Options) -> TrainingJob:
    """Prepare a fine-tuning run: choose its recipe and open its data.

    Raises RecipeError, DataError and CheckpointError.
    """
    load_plugins()
    spec = find_learnt(task)
    start = _start(model, options)
    name = recipe or start.recipe_name(spec)
    chosen = find_recipe(name) if isinstance(name, str) else name
    if chosen.task != spec.name:
        raise RecipeError(f"{chosen.name} is for {chosen.task}, but the task is {spec.name}; choose another recipe")
    chosen, lost = start.fit(chosen, named=recipe is not None)
    chosen = chosen.override(start.with_settings(chosen, options.settings))
    chosen.check_begun()
    return _job(task, Stages(chosen.name, (chosen,)), data, start, options, lost)


def pretraining(
    data: Data | Mapping[str, Data], recipe: str | Recipe | Stages, model: Any, options: Options
) -> TrainingJob:
    """Prepare a pre-training run: choose its recipe and open its data.

    Raises RecipeError, DataError and CheckpointError.
    """
    load_plugins()
    start = _start(model, options)
    named = find_stages(recipe) if isinstance(recipe, str) else recipe
    named, lost = fit_stages(named if isinstance(named, Stages) else Stages(named.name, (named,)), start)
    chosen = named.override(start.with_settings(named.recipes[0], options.settings))
    chosen.check_pretrains()
    chosen.recipes[0].check_begun()
    return _job("pretrain", chosen, data, start, options, lost)


def _job(
    task: str, stages: Stages, data: Data | Mapping[str, Data], start: Start, options: Options, note: str
) -> TrainingJob:
    if options.epochs is not None and any("training.steps=" in one for one in options.settings):
        raise RecipeError(f"found --epochs {options.epochs:g} and a number of steps; pass one of the two")
    options = replace(options, epochs=options.epochs or stages.recipes[0].training.epochs)
    stages = _changed(stages, {"epochs": None})
    begun = stages if options.epochs is None else _changed(stages, {"steps": MOST_STEPS})
    # Errors of the folders are raised before data is read.
    folders = () if options.out is None else open_stages(begun, path_of(options.out))
    if isinstance(data, Mapping) and not data:
        raise DataError("data: found an empty dict, expected data sets by name, such as {'cc': 'STORE'}")
    opened = {
        name: opened_data(one, options) for name, one in (data if isinstance(data, Mapping) else {"": data}).items()
    }
    if options.detector is not None and all(isinstance(one, Store) for _, one in opened.values()):
        raise RecipeError("data: found a store, which has regions already; leave out --detector")
    for one in stages.recipes:
        if "" not in opened:
            check_split(one.data.split, "data", Counter(split for each in opened.items() for split in _splits(*each)))
        elif one.data.text is None:
            check_words(find_task(one.task), one.data.split, *opened[""])
    made = hashlib.sha256()
    chosen = [one.model_dump_json() for one in stages.recipes], replace(options, out=None), start.digest()
    files = [sha256_of(path) for one in stages.recipes for _, path in files_of(one)]
    for part in (repr(chosen), *files, *(part for _, one in opened.values() for part in _contents(one))):
        made.update(part.encode())
    out = Path("runs", f"{task}-{made.hexdigest()[:8]}") if options.out is None else path_of(options.out)
    return TrainingJob(folders or open_stages(begun, out), opened, start, out, options, made.hexdigest(), note)


def _splits(name: str, data: tuple[Path, Store | list[Record]]) -> Iterator[str]:
    """Yield the split of each record of a named data set: its split `train` has its name."""
    splits = data[1].split_names if isinstance(data[1], Store) else [record.split for record in data[1]]
    yield from (renamed(name, split) for split in splits)


def _changed(stages: Stages, training: Mapping[str, Any]) -> Stages:
    return replace(stages, recipes=tuple(derive(one, training=dict(training)) for one in stages.recipes))


def _start(model: Any, options: Options) -> Start:
    return Start.of(None if model is None else open_folder(model, revision=options.revision))


def opened_data(data: Data, options: Options) -> tuple[Path, Store | list[Record]]:
    """Return the path of the data (or a name for messages), and the opened data."""
    if isinstance(data, Store):
        return data.folder, data
    if isinstance(data, Dataset):
        return (data.source, Store(data.source)) if data.source is not None else (Path(data.name), list(data.records))
    if not isinstance(data, str | os.PathLike):
        raise DataError(
            f"data: found {type(data).__name__}, expected a path, store or Dataset (for rows: Dataset.from_rows(data))"
        )
    path = path_of(data)
    features = None if options.features is None else path_of(options.features)
    return path, open_data(path, make_console(), options.split_seed, features, options.skip_bad)


def check_words(spec: TaskSpec, split: str, path: Path, records: Store | list[Record]) -> None:
    """Check records before a store is made of them.

    Raises DataError if no record of the split can be used for the task.
    """
    if isinstance(records, Store):
        return
    chosen = [record for record in records if record.split in splits_in(split)]
    check_split(split, path, Counter(record.split for record in records))
    if not any(map(spec.learns_from, chosen)):
        fields = sorted({name for record in chosen for name, items in record.words().items() if items})
        wanted = " or ".join(f"{name}{' with answers' * (name == 'questions')}" for name in (spec.field, *spec.also))
        raise DataError(
            f"{spec.name} needs {wanted}, but split {split!r} of {path} has none: found "
            f"{counted(chosen, 'images')} with {', '.join(fields) or 'no words'}; add some, or choose another task or "
            "split"
        )


def _contents(opened: Store | list[Record]) -> Iterator[str]:
    """Yield texts whose digest identifies the data: the digest of a store, or each record as text."""
    if isinstance(opened, Store):
        yield opened.content
    else:
        yield from (json.dumps(record_to_json(record), sort_keys=True) for record in opened)
