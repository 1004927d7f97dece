"""The learner of a run, as `diptych.runs.run` makes it, without training."""

from pathlib import Path

from diptych.data.store.store import Store
from diptych.runs import run
from diptych.runs.folder import ModelFolder
from diptych.runs.learner import Learner
from diptych.runs.run_folder import RunFolder
from diptych.runs.start import Start
from diptych.systems.recipe import Recipe


def learner_of(out: Path, recipe: Recipe, store: Store, model: ModelFolder | None = None) -> Learner:
    return run.learner_of(RunFolder.open(out, recipe), store, Start.of(model))


def notes_of(out: Path, recipe: Recipe, store: Store, model: ModelFolder | None = None) -> list[str]:
    """Warnings before the run, but those of its batches."""
    learner = learner_of(out, recipe, store, model)
    return [*Start.of(model).by(recipe).notes(learner), *learner.notes()]
