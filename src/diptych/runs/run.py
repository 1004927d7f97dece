"""Train a model with a recipe on a store. The commands `pretrain`, `finetune` and `demo` call `run` or `run_in`."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from diptych.core.folders import INNER
from diptych.core.shares import FEWEST
from diptych.data.leakage import prints_of
from diptych.data.store.store import Store
from diptych.models.weights import load_into
from diptych.runs.familiarity import measured
from diptych.runs.folder import CALIBRATED, UNCALIBRATED, VALIDATED, ModelFolder
from diptych.runs.inputs import checked_inputs, save_inputs
from diptych.runs.learner import Learner, answers_of, make_learner
from diptych.runs.predict import left_out, shown_to
from diptych.runs.run_folder import RunFolder
from diptych.runs.start import Start
from diptych.runs.validation import calibration, validation
from diptych.runs.words import example_texts, keep_tokens
from diptych.runtime.configs import derive
from diptych.runtime.devices import torch_unchanged
from diptych.runtime.outputs import refuse_replaced
from diptych.runtime.progress import tell
from diptych.runtime.terminal import make_console
from diptych.runtime.weight_files import read_weights
from diptych.systems.recipe import Recipe
from diptych.training import Result, train
from diptych.training.trainer import OnLog

UNVALIDATED = {"validate_every": None, "patience": None, "average_best": 1}  # for a run without validation


@dataclass(frozen=True)
class FinishedRun:
    """The trained model of a run, and the result of training."""

    model: ModelFolder
    result: Result


def run(
    recipe: Recipe, store: Store, out: Path, start: ModelFolder | None = None, console: Console | None = None,
    on_log: OnLog | None = None,
) -> FinishedRun:  # fmt: skip
    """Train with the recipe, from random weights or from `start`, and write `out/model`.

    A repeated call resumes a stopped run.

    `on_log` is called with each log line; if it returns False, training ends. Raises RecipeError, DataError or
    CheckpointError before any file is written.
    """
    return run_in(RunFolder.open(out, recipe), store, Start.of(start), console, on_log)


@torch_unchanged()
def run_in(
    folder: RunFolder, store: Store, start: Start, console: Console | None = None, on_log: OnLog | None = None
) -> FinishedRun:
    """Like `run`, with an opened `RunFolder`."""
    console, recipe, out = console or make_console(), folder.recipe, folder.path
    inputs = checked_inputs(out, recipe, store)
    refuse_replaced(out / INNER, "model")
    start = start.by(recipe)
    learner = learner_of(folder, store, start)

    model = learner.build()
    for note in start.load(model, learner, folder.begun):
        tell(console, note)

    batches, validate = learner.batches(), validation(learner, console)
    for note in (*folder.notes, *start.notes(learner), *learner.notes(), *learner.left_out(batches)):
        tell(console, note)

    def take_folder() -> None:
        folder.claim()
        save_inputs(out, inputs)
        keep_tokens(learner.tokens, out)

    result = train(
        model,
        learner.schedule,
        batches,
        optimizer=recipe.optimizer,
        training=recipe.training if validate else derive(recipe.training, **UNVALIDATED),
        folder=out,
        validate=validate,
        score=learner.spec.training.watched if validate else None,
        fingerprint=start.fingerprint(recipe),
        console=console,
        begin=take_folder,
        on_log=on_log,
    )
    if batches.corrupt:
        console.print(left_out(batches.corrupt, "training"), markup=False)
    return FinishedRun(_save(learner, start, result, console), result)


def learner_of(folder: RunFolder, store: Store, start: Start) -> Learner:
    """Build and check the learner of a run.

    Raises RecipeError, DataError or CheckpointError if training could not work.
    """
    recipe, start = folder.recipe, start.by(folder.recipe)
    store = shown_to(recipe, store)
    start.check(recipe, store)
    tokens, answers = start.tokens(folder, store), answers_of(recipe, store, start.answers)
    learner = make_learner(recipe, store, tokens, answers, folder.path)
    learner.check()
    return learner


def _save(learner: Learner, start: Start, result: Result, console: Console) -> ModelFolder:
    """Make the model folder of the final weights, and write it in rank 0."""
    recipe, store, answers = learner.recipe, learner.store, learner.answers
    out, model = learner.out / INNER, learner.architecture.build()
    load_into(model, read_weights(result.weights), complete=True)
    scores = next((dict(v.scores) for v in result.history if v.step == result.best_step), None)
    if scores is not None and len(learner.held_out) < FEWEST:
        scores[VALIDATED] = float(len(learner.held_out))
    fitted = calibration(learner, model.eval())
    if answers is not None and fitted is not None:
        answers = replace(answers, temperature=fitted.temperature, sure_above=fitted.sure_above)
        scores = {**(scores or {}), UNCALIBRATED: fitted.before, CALIBRATED: fitted.after}
        tell(console, f"{fitted.line} (fitted on {fitted.questions} questions of {recipe.data.validation})")
    splits, most = (recipe.data.split, recipe.data.validation), recipe.model.max_regions
    # Another detector than the store's does not describe the model's images.
    same = start.contract is not None and not start.contract.differences(store.contract, ["features"])
    familiarity = None if store.hides_images else measured(store, splits, most, start.familiarity if same else None)
    texts = example_texts(store, learner.records, learner.spec.field)
    made = ModelFolder(
        out, model, derive(learner.architecture, examples=texts), learner.tokens, store.contract, recipe, answers,
        detector=store.detector() or (start.detector if same else None), validation=scores, familiarity=familiarity,
    )  # fmt: skip
    if os.environ.get("RANK", "0") != "0":
        return made
    return replace(made, seen=start.seen(prints_of(store, learner.records))).save(out)
