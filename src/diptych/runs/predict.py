"""Predictions of a model for the records of a split."""

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
    """The predictions for a split, with the split's records and the task of the predictions."""

    predictions: list[dict[str, Any]]
    records: list[Record]
    task: Task
    damaged: tuple[str, ...] = ()  # keys of records that could not be read

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
    """Predict for each record of a split. Damaged records are left out and listed in `damaged`.

    `name`: the task; default: the one the model was trained for. `decoding`: options for captions; default: the
    recipe's. A `console` shows a progress bar. Raises RecipeError and DataError.
    """
    task = model.task(name)
    if decoding is not None and isinstance(task, Captioning):
        task = replace(task, decoding=decoding)
    return predict_by(task, model, store, split, console)


def predict_by(task: Task, model: ModelFolder, store: Store, split: str, console: Console | None = None) -> Predictions:
    """Like `predict`, for a task object instead of a task's name."""
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
    """Return the store that models of this recipe read: with blank regions if data.images is false, else unchanged."""
    return store if recipe is None or recipe.data.images else store.without_images()


def in_split(store: Store, split: str, option: str) -> list[int]:
    """Return the indices of the records of a split, or of several ("cc+sbu"). Raises DataError for an empty split.

    `option`: the command-line option that chooses the split, which the error names.
    """
    check_split(split, store.folder, store.splits, f"; choose with {option}")
    return store.split(split)


def left_out(keys: Collection[str], of: str) -> str:
    """Return a line about damaged records that were left out."""
    return f"{len(keys)} damaged records were left out of {of}: {', '.join(sorted(keys)[:5])}"


def readable(
    store: Store, indices: Sequence[int], most: int, with_pixels: Callable[[Record], Record] | None
) -> tuple[list[Record], tuple[str, ...]]:
    """Read records with their best regions (at most `most`).

    Return them without pixels, and the keys of unreadable records.

    `with_pixels` is called to check that the image can be read. Raises DataError if no record can be read.
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
    """Return a function that adds an image's pixels to its record. None if the recipe's model reads no pixels."""
    pixels = recipe.pixels
    return None if pixels is None else pixels.added_to
