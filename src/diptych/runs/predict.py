"""Predict for the records of a split."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console

from diptych.core import Record, Task
from diptych.data.store.store import Store, check_split
from diptych.models.decoding import DecodingOptions
from diptych.runs.folder import ModelFolder
from diptych.runtime.errors import DataError
from diptych.runtime.progress import bar
from diptych.systems.recipe import Recipe
from diptych.tasks.caption import Captioning
from diptych.tasks.run import predict_records


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
    task = model.task(name)
    if decoding is not None and isinstance(task, Captioning):
        task = replace(task, decoding=decoding)
    return predict_by(task, model, store, split, console)


def predict_by(task: Task, model: ModelFolder, store: Store, split: str, console: Console | None = None) -> Predictions:
    """Like `predict`, with a task that was not built from the model's recipe."""
    model.accept(store.contract, store.folder)
    store = shown_to(model.recipe, store)
    with_pixels = pixel_reader(model.recipe) if model.recipe is not None else None
    most = model.architecture.config.max_regions
    records, damaged = readable(store, in_split(store, split, "--split"), most, with_pixels)
    with bar("pictures", console or Console(quiet=True)) as progress:
        bar_task = progress.add_task("predicting", total=len(records))

        def read() -> Iterator[Record]:
            for record in records:
                yield record
                progress.advance(bar_task)

        predictions = predict_records(task, model.model, read(), with_pixels=with_pixels)
    return Predictions(predictions, records, task, damaged)


def shown_to(recipe: Recipe | None, store: Store) -> Store:
    """Return the store as a model of this recipe reads it: without images if data.images is false."""
    return store if recipe is None or recipe.data.images else store.without_images()


def in_split(store: Store, split: str, option: str) -> list[int]:
    """Return the indices of the records of one or more splits. Raises DataError for an empty one.

    `option`: command-line option that chooses the split, for the error.
    """
    check_split(split, store.folder, store.splits, f"; choose with {option}")
    return store.split(split)


def left_out(keys: Collection[str], of: str) -> str:
    """Return the line about damaged records."""
    return f"{len(keys)} damaged records were left out of {of}: {', '.join(sorted(keys)[:5])}"


def readable(
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


def pixel_reader(recipe: Recipe) -> Callable[[Record], Record] | None:
    """Return the function that adds an image's pixels to its record; None if the model reads no pixels."""
    pixels = recipe.pixels
    return None if pixels is None else pixels.added_to
