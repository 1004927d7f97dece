"""`evaluate` a model on a split, and `compare` two models on the same images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from diptych.api.arguments import check_features, python_errors
from diptych.api.job import AnyPath, Data, Options, check_words, opened_data
from diptych.core.shares import FEWEST
from diptych.data.extract.own_data import store_of
from diptych.data.leakage import leakage
from diptych.data.store.store import Store, check_split, splits_in
from diptych.inference.open import open_folder
from diptych.runs.evaluation.evaluate import check_scored, score_model
from diptych.runs.evaluation.reproduce import reproduce
from diptych.runs.folder import ModelFolder
from diptych.runs.predict import predict
from diptych.runs.reports.page import write_evaluation
from diptych.runtime.arguments import check_type, path_of
from diptych.runtime.devices import torch_unchanged
from diptych.runtime.errors import DataError, RecipeError, counted
from diptych.runtime.files import refuse_unwritable
from diptych.runtime.plugins import load_plugins
from diptych.runtime.terminal import make_console
from diptych.systems.ledger import LedgerRow
from diptych.tasks import TASKS, TaskSpec, find_task
from diptych.tasks.scores import Score, Scores
from diptych.tasks.spec import Gain


@python_errors
@torch_unchanged()
def evaluate(
    model: Any, data: Data, *, split: str = "test", task: str | None = None, features: AnyPath | None = None,
    without_images: bool = False, skip_bad: bool = False, report: AnyPath | None = None,
) -> Scores:  # fmt: skip
    """Score a model on a split.

    Return scores times 100 with 95% intervals, and a blind baseline and a human ceiling if they exist.

    Args:
        model: folder, name on the hub, a loaded model or a run.
        data: a `Dataset`, a store, or a path that `Dataset.read` takes.
        split: the split to score, or several joined by +.
        task: by default the task that the model was trained for.
        features: file or folder of precomputed region features, for a model that was trained on such features.
        skip_bad: allow data in which more than 10 entries, and more than 1% of all, are invalid.
        report: HTML page to write: the scores, and at most 60 images with their predictions and scores.
        without_images: score the model with blank regions. The gain of the same model with images is also scored.

    Raises RecipeError, DataError and CheckpointError.
    """
    check_features(features)
    check_type("report", report, (str, os.PathLike, type(None)), "the path of an HTML file to write", RecipeError)
    page = None if report is None else path_of(report)
    refuse_unwritable(page)
    _check_task(task)
    folder = open_folder(model)
    spec = check_scored(folder, task, without_images=without_images)[0]
    with scored_store(data, folder, Options(features=features, skip_bad=skip_bad), split, spec) as store:
        scores = score_model(folder, store, split, task=task, console=make_console(), without_images=without_images)[1]
        if page is not None:
            write_evaluation(page, folder, store, split, scores, str(data.folder if isinstance(data, Store) else data))
        return scores


@python_errors
@torch_unchanged()
def compare(
    first: Any, second: Any, data: Data, *, split: str = "test", task: str | None = None, skip_bad: bool = False
) -> Score:
    """Compare two models on the same images: the score of the second minus that of the first, times 100.

    The 95% interval is from a paired bootstrap over images (Koehn, EMNLP 2004). The models differ significantly if this
    interval excludes 0. `.compared` has the name and the score of A (the first model) and B. `.notes` states how many
    of the images each was trained on. Arguments and errors are as in `evaluate`. Also raises RecipeError for a task
    whose predictions cannot be paired.
    """
    return paired_gain(first, second, data, split, task, skip_bad)


def paired_gain(first: Any, second: Any, data: Data, split: str, task: str | None, skip_bad: bool) -> Score:
    """Do the same as `compare`, with errors that name command-line options."""
    _check_task(task)
    folders = [open_folder(first, "first"), open_folder(second, "second")]
    spec, gain_of = _shared_task(*(folder.task(task).name for folder in folders))
    alike = folders[0].contract == folders[1].contract  # if True, regions are extracted only once, for both models
    given = Options(skip_bad=skip_bad)
    with ExitStack() as stack:
        stores = [
            stack.enter_context(scored_store(data, one, given, split, spec, alone=True)) for one in folders[: 2 - alike]
        ]
        scored = list(zip(folders, 2 * stores, strict=False))
        predicted = [predict(model, store, split, task, console=make_console()) for model, store in scored]
        trained_on = [leakage(model.seen, store, store.split(split)).text for model, store in scored]
    by_key = [spec.by_key(one.predictions) for one in predicted]
    read = {record.key for record in predicted[1].records}
    both = [record for record in predicted[0].records if record.key in read]
    notes = [f"{name}: {seen}" for name, seen in zip("AB", trained_on, strict=True)]
    if len(both) < FEWEST:
        notes.append(f"only {counted(both, 'images')}: too few for a reliable comparison")
    gain = gain_of(by_key[0], by_key[1], both)
    values = [{one.name: one.value for one in spec.scoring.score(own, both, None).scores} for own in by_key]
    compared = tuple((folder.name, of.get(gain.name)) for folder, of in zip(folders, values, strict=True))
    return replace(gain, notes=tuple(notes), compared=compared)


def compare_with_row(
    model: ModelFolder, row: LedgerRow, part: str, data: Data, split: str, task: str | None, skip_bad: bool
) -> dict[str, Any]:
    """Score a model, and return the report of `reproduce`. `part` is as `data` in `LedgerRow.scored`.

    Raises RecipeError if the row is of another system than the model, or has no number for its task and the split.
    """
    if row.row.system != model.architecture.system:
        of, system = row.row.system or "another system", model.architecture.system
        raise RecipeError(f"{row.id} is of {of}, but the model is of {system}; pass a row of {system}")
    numbers = row.scored(task or model.task().name, split, part)
    with scored_store(data, model, Options(skip_bad=skip_bad), split, check_scored(model, task)[0]) as store:
        return reproduce(model, row, numbers, store, split, task, make_console())


def _shared_task(first: str, second: str) -> tuple[TaskSpec, Gain]:
    """Return the task of both models, and how to compute its gain. Raises RecipeError if there is none."""
    spec = find_task(first)
    if first == second and spec.scoring.gain is not None:
        return spec, spec.scoring.gain
    able = ", ".join(name for name, spec in TASKS.items() if spec.scoring.gain is not None and not spec.pretrains)
    raise RecipeError(
        f"found models for {first} and {second}, expected both for the same task, one of {able}: pass "
        "--task, or evaluate each model by itself"
    )


def _check_task(task: object) -> None:
    """Raise RecipeError unless the argument `task` is None or the name of a task."""
    check_type("task", task, (str, type(None)), "the name of a task, such as 'caption'", RecipeError)
    if isinstance(task, str):
        load_plugins()
        find_task(task)


@contextmanager
def scored_store(
    data: Data, model: ModelFolder, options: Options, split: str, spec: TaskSpec | None, alone: bool = False
) -> Iterator[Store]:
    """Open data as a store.

    If the data is not a store, the model's detector extracts its regions to a temporary folder.

    `split`: the split to score. `spec`: the task to score, if known. `alone`: True if no baseline is fitted to other
    splits; then the regions of other splits are not extracted. Raises DataError for a split without records for the
    task, before any image is opened.
    """
    check_type("split", split, str, "the name of a split, or several joined by +", DataError)
    path, opened = opened_data(data, options)
    names = opened.split_names if isinstance(opened, Store) else [record.split for record in opened]
    check_split(split, f"split: {path}", Counter(names))
    if spec is not None:
        check_words(spec, split, path, opened)
    if alone and not isinstance(opened, Store):
        opened = [record for record in opened if record.split in splits_in(split)]
    features = None if options.features is None else path_of(options.features)
    with TemporaryDirectory() as scratch:
        yield store_of(
            opened, path, Path(scratch) / "store", str(model.folder), make_console(), features, options.skip_bad
        )
