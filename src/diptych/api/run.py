"""`Run`: the folder of a training run, as `finetune` and `pretrain` return it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diptych.api.model import Model, load
from diptych.inference.open import HasFolder
from diptych.runs.folder import ModelFolder, model_in
from diptych.runs.plots import charts, find_runs, svg_of
from diptych.runtime.arguments import check_path, path_of
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems.recipe import FILE, Recipe
from diptych.training.log import METRICS, flat_numbers, read_lines

if TYPE_CHECKING:
    import pandas

SMOOTH = 5  # each point that `plot` draws is a mean loss over this number of logged steps


class Metrics(list[dict[str, Any]]):
    """The logged steps of a run. Each is a dict: step, total, lr, losses/NAME, validation/NAME, samples_per_second."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with a row per logged step. Validation columns are NaN in steps without a validation."""
        from pandas import DataFrame

        return DataFrame(self)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(name for row in self for name in row))
        return f"<diptych.Metrics of {len(self)} logged steps: {names[:200]}>"


class Plot(str):
    """A drawing as SVG text, which notebooks show. `save` writes it to a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        if Path(path).suffix.lower() != ".svg":
            raise RecipeError(
                f"path: found {path}, expected a name ending in .svg; `diptych plot` writes .html and .csv"
            )
        path_of(path).write_text(self, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"<diptych.Plot: SVG of {len(self):,} characters; .save(path) writes it>"


class Run(HasFolder):
    """The folder of a training run: its recipe, logged steps, learning curves and trained model.

    `folder` is the path. `folder / "model"` is a complete model folder, which can be copied.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open a folder that `finetune` or `pretrain` wrote. Raises CheckpointError for any other folder."""
        check_path("folder", folder, "the folder of a run", CheckpointError)
        self.folder = path_of(folder)
        if not any(self.folder.glob(FILE)) and not any(self.folder.glob(f"stage-*/{FILE}")):
            raise CheckpointError(
                f"{folder} is not the folder of a run: it has no {FILE}; pass the folder of a finetune or pretrain run"
            )

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run. If the run has several stages: the recipe of the last stage that has started."""
        return Recipe.load(max([self.folder, *self.folder.glob("stage-*")], key=lambda one: (one / FILE).exists()))

    @property
    def metrics(self) -> Metrics:
        """All logged steps. If the run has several stages, each step has a `stage`."""
        return Metrics(
            ({"stage": folder.name} if folder != self.folder else {}) | flat_numbers(line)
            for folder in find_runs([self.folder]).values()
            for line in read_lines(folder / METRICS)
        )

    def plot(self) -> Plot:
        """Draw the losses, validation scores and learning rates over the steps."""
        runs = {folder.name: folder for folder in find_runs([self.folder]).values()}
        return Plot(svg_of(charts(runs, SMOOTH), list(runs)))

    @cached_property
    def model(self) -> Model:
        """The trained model, opened. Raises CheckpointError if the run has not finished."""
        return load(self.folder)

    def model_folder(self) -> ModelFolder:
        return self.model.predictor.folder

    def __repr__(self) -> str:
        ended = model_in(self.folder) is not None
        state = "finished" if ended else "not finished"
        try:
            steps = max((row["step"] for row in self.metrics), default=0)
        except DataError:  # the run was stopped before its first step, so it has no log
            steps = 0
        return f"<diptych.Run {str(self.folder)[-100:]}: {self.recipe.name[:60]}, {state} at step {steps}>"
