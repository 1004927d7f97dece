"""The arms that a claim compares. An arm is a chain of trainings and the task that its last model is scored on.

Equal chains are trained once. These rules were fixed before any run that counts was scored (docs/claims.md):

- Size and data: each system's small recipes, on the drawn world with 6,000 training scenes and the regions of the
  demo's detector. Pre-training reads the split web: 10,000 scenes with one noisy caption each. Fine-tuning reads
  `LABELS` or `MORE_LABELS` training scenes, unless a claim gives another number. There is no dropout, because it slows
  learning at this width.
- Steps of pre-training: `SHARE` of the recipe's own steps, with batches of `PRETRAIN_BATCH`. So the arms keep the
  paper's proportion of steps. ImageBERT has all its steps, because it learns matching only after two thirds of them.
- Steps of fine-tuning: `STEPS[task]`. They were chosen on val, long enough to leave chance in VQA and VCR
  (experiments/LOG.md).
- Choice of weights: fine-tuning is validated `LOOKS` times and keeps the best weights. Pre-training keeps its last
  weights. Test is scored once, at the end.
- Seeds: all trainings of a chain have the same seed. Two arms are compared seed by seed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from diptych.core.folders import INNER
from diptych.data.store.store import Store
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.evaluation.retrieve import Extent
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.configs import derive
from diptych.runtime.files import write_atomically
from diptych.systems import find_recipe
from diptych.systems.recipe import Recipe
from diptych.tasks import find_task

SHARE, SHARES, PRETRAIN_BATCH, LOOKS = 0.75, {"image-bert": 1.0}, 64, 5
STEPS = {"caption": 300, "vqa": 800, "vcr": 900, "referring": 400, "nlvr": 800, "retrieval": 600}
BATCH, BATCHES = 32, {"vqa": 64, "vcr": 64, "nlvr": 64, "retrieval": 16}
LONGER = ("training.steps=1600", "training.validate_every=320")  # VL-BERT's VQA: after 800 steps, yes/no is at chance
LABELS = 300  # training scenes
MORE_LABELS = {"vqa": "1000", "nlvr": "1000", "vcr": "null"}  # null: all 6,000; with 300, these tasks stay at chance
DROPOUT = ("model.dropout=0", "model.attention_dropout=0")
Job = TypeVar("Job")
QUERIES = 300  # captions that search all test images, for models that score pairs (no claim is about text retrieval)


@dataclass(frozen=True)
class Stage:
    """One training: a small recipe, changes to its settings, and the training whose weights it starts from (`after`).

    `settings` also apply to the paper's recipe; `small` only to the small one, after `settings`. `real` names the
    paper's recipe, if its name differs from the small one's in more than `small/`. `share` is a factor of the usual
    number of steps, such as 0.5 for half. `store` names the store to train on.
    """

    recipe: str
    settings: tuple[str, ...] = ()
    after: Stage | None = None
    store: str = "detected"
    small: tuple[str, ...] = ()
    real: str = ""
    share: float = 1.0

    def then(
        self,
        recipe: str,
        *settings: str,
        store: str | None = None,
        small: tuple[str, ...] = (),
        real: str = "",
        share: float = 1.0,
    ) -> Stage:
        return Stage(recipe, settings, self, store or self.store, small, real, share)

    @property
    def chain(self) -> tuple[Stage, ...]:
        return (*(self.after.chain if self.after is not None else ()), self)


@dataclass(frozen=True)
class Arm:
    """A chain of trainings that ends with `last`, the task that its model is scored on, and the score (empty: the
    claim's)."""

    last: Stage
    task: str
    score: str = ""

    @property
    def stores(self) -> frozenset[str]:
        return frozenset(stage.store for stage in self.last.chain)


@dataclass(frozen=True)
class Place:
    """Where claims run: `stores` by name, the file `text` for text-only training, and `out`, the folder of the runs.

    `real` selects the papers' own recipes. `inits` has their initial weights: a name, such as "BERT base", and the
    settings that load its weights and vocabulary. `features` identifies the detector that made the stores' features.
    """

    stores: tuple[tuple[str, str], ...]
    out: str
    text: str = ""
    real: bool = False
    inits: tuple[tuple[str, tuple[str, ...]], ...] = ()
    features: str = ""

    def store(self, name: str) -> Path:
        return Path(dict(self.stores)[name])


def in_turns(jobs: Iterable[Job], chain: Callable[[Job], Hashable]) -> list[Job]:
    """Order jobs in rounds: the first job of each chain, then the second of each. Jobs of one chain start with the same
    training, so they would wait for each other."""
    rounds: Counter[Hashable] = Counter()
    numbered = []
    for job in jobs:
        numbered.append((rounds[chain(job)], job))
        rounds[chain(job)] += 1
    return [job for _, job in sorted(numbered, key=itemgetter(0))]


def recipe_of(stage: Stage, seed: int, place: Place) -> Recipe:
    """Return the stage's recipe with the settings of the rules. If `place.real`, return the paper's recipe with only
    the stage's changes."""
    if place.real:
        return _real(stage, seed, place)
    recipe = find_recipe(stage.recipe)
    own = [*DROPOUT, f"training.seed={seed}", "training.threads=1", "training.loading_threads=1"]
    if find_task(recipe.task).pretrains:
        steps = round(recipe.training.steps * stage.share * SHARES.get(recipe.system, SHARE))
        own += ["data.split=web", f"training.batch={PRETRAIN_BATCH}", f"training.steps={steps}"]
        own += ["training.validate_every=null", f"training.checkpoint_every={steps}"]
    else:
        steps = round(STEPS[recipe.task] * stage.share)
        own += [f"data.records={MORE_LABELS.get(recipe.task, LABELS)}"]
        own += [f"training.batch={BATCHES.get(recipe.task, BATCH)}"]
        own += [f"training.steps={steps}", f"training.validate_every={steps // LOOKS}"]
        own += [f"training.checkpoint_every={steps}"]
    return recipe.override([*own, *_filled((*stage.settings, *stage.small), place)])


def _real(stage: Stage, seed: int, place: Place) -> Recipe:
    recipe = find_recipe(stage.real or stage.recipe.replace("/small/", "/"))
    own = [f"training.seed={seed}", f"training.steps={round(recipe.training.steps * stage.share)}"]
    if find_task(recipe.task).pretrains:
        own.append("data.split=web")
    if stage.after is None:
        own += [one for name, begins in place.inits if recipe.init == f"paper: {name}" for one in begins]
    return recipe.override([*own, *_filled(stage.settings, place)])


def _filled(settings: Iterable[str], place: Place) -> Iterator[str]:
    return (one.replace("TEXT", place.text) for one in settings)


def key_of(stage: Stage, seed: int, place: Place) -> str:
    """Return a hash of the recipes and stores of a chain; equal hashes mean the same training.

    Settings at their defaults are left out. So a setting that Diptych adds later does not change the hash of an older
    run.
    """
    recipes: list[tuple[str, dict[str, Any]]] = []
    for one in stage.chain:
        recipe = recipe_of(one, seed, place).model_dump(mode="json", exclude_defaults=True)
        if "text" in recipe.get("data", {}):
            recipe["data"]["text"] = True  # the path does not change the training
        recipes.append((one.store, recipe))
    return hashlib.sha256(json.dumps(recipes, sort_keys=True).encode()).hexdigest()[:16]


def train_chain(stage: Stage, seed: int, place: Place) -> ModelFolder:
    """Train each stage of the chain that is not finished, and return the last model. A run's folder is named by its
    hash (`key_of`), and a stopped run resumes."""
    start = train_chain(stage.after, seed, place) if stage.after is not None else None
    folder = Path(place.out) / key_of(stage, seed, place)
    if (folder / "done").exists():
        return open_model(folder / INNER)
    recipe = recipe_of(stage, seed, place)
    if start is not None:
        fitted = fit_to(recipe, start)
        recipe = derive(fitted, model={"max_regions": recipe.model.max_regions})
    with _turn(folder):
        if not (folder / "done").exists():
            run(recipe, Store(place.store(stage.store)), folder, start, Console(quiet=True))
            write_atomically(folder / "done", b"")
    return open_model(folder / INNER)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Lock the folder of a run, so that arms with the same first training train it once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".turn").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def scores_of(arm: Arm, seed: int, place: Place) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores on the test split, by name and in points, and the blind baseline of each."""
    found = measured(arm, seed, place)
    values = {name: round(score["value"], 3) for name, score in found.items()}
    return values, {name: round(score["blind"], 3) for name, score in found.items() if "blind" in score}


def measured(arm: Arm, seed: int, place: Place, split: str = "test") -> dict[str, Any]:
    """Return each score of a split in the form of `Score.to_json`. Scores are computed once and kept in the folder of
    the run."""
    torch.set_num_threads(1)
    kept = Path(place.out) / key_of(arm.last, seed, place) / f"{arm.task}-{split}.json"
    if not kept.exists():
        model = train_chain(arm.last, seed, place)
        pairs = arm.task == "retrieval" and not _is_fast(model)
        ranked = Extent(queries=QUERIES, seed=seed, asks="pictures") if pairs else None
        _, scores = score_model(model, Store(place.store(arm.last.store)), split, task=arm.task, extent=ranked)
        write_atomically(kept, json.dumps(scores.to_json()["scores"]).encode())
    found: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return found


def _is_fast(model: ModelFolder) -> bool:
    """Return whether the model retrieves by vectors, not by scoring pairs."""
    return "similarity" in model.architecture.heads


def describe(stage: Stage) -> Iterator[dict[str, Any]]:
    for one in stage.chain:
        yield {"recipe": one.recipe, "settings": [*one.settings, *one.small], "share": one.share, "store": one.store}
