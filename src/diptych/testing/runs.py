"""Check that a killed run resumes exactly, and that training with two processes equals training with one."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import load_file

from diptych.core import FeatureContract, Record
from diptych.core.folders import INNER
from diptych.data.store.store import Store, StoreWriter
from diptych.runs.distributed import together
from diptych.runs.folder import WEIGHTS, open_model
from diptych.runs.run import run
from diptych.runtime.configs import derive
from diptych.runtime.files import text_of
from diptych.runtime.plugins import load_plugins
from diptych.runtime.processes import process_context
from diptych.systems import Recipe, find_recipe
from diptych.testing.case import EIGHT, sizes, small
from diptych.training.checkpoint import steps_in
from diptych.training.ranks import join_ranks
from diptych.training.trainer import CHECKPOINTS

# With these settings, training with 1, 2 or 4 processes gives the same weights.
ALIKE = {
    "training.steps": 6, "training.checkpoint_every": 3, "training.batch": 8, "training.log_every": 1,
    "training.validate_every": "null", "training.patience": "null", "training.average_best": 1,
    "training.precision": "fp32", "training.device": "cpu", "data.split": "train",
    "model.dropout": 0, "model.attention_dropout": 0,
    "optimizer.kind": "sgd", "optimizer.lr": 0.02,  # because Adam would amplify rounding errors
}  # fmt: skip
KILLED = {"training.steps": 12, "training.checkpoint_every": 2, "optimizer.kind": "adamw", "optimizer.lr": 1e-3}


def toy_store(folder: Path, records: Sequence[Record] = EIGHT) -> Path:
    """Write a store of records with regions. The last record is in the split val, the others are in train."""
    features, classes = sizes(records)
    contract = FeatureContract("given", "", features, tuple(f"class {number}" for number in range(classes)))
    with StoreWriter(folder, contract) as writer:
        for record in records:
            writer.add(replace(record, split="val" if record is records[-1] else "train"))
    return folder


def toy_recipe(recipe: Recipe | str, shape: Mapping[str, Any] | None = None, **settings: Any) -> Recipe:
    """Return a recipe with a small model, few steps and the settings ALIKE. `settings` override these."""
    load_plugins()
    recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
    made = derive(recipe, model=small(recipe.model, shape or {}).model_dump(), init=None)
    return made.override([f"{key}={value}" for key, value in {**ALIKE, **settings}.items()])


def check_resume(
    recipe: Recipe | str, folder: Path, records: Sequence[Record] = EIGHT, start: Path | None = None, **options: Any
) -> None:
    """Check that a killed (SIGKILL) and resumed run has exactly the losses and weights of an uninterrupted run.

    `start`: a model folder to start from. `options`: arguments of `toy_recipe`.
    """
    store, chosen = toy_store(folder / "store", records), toy_recipe(recipe, **{**KILLED, **options})
    _train(chosen, store, folder / "whole", start)
    given = (chosen, store, folder / "killed", start)
    killed = process_context().Process(target=_in_process, args=(torch.get_num_threads(), *given))
    killed.start()
    while killed.is_alive() and not steps_in(folder / "killed" / CHECKPOINTS):
        time.sleep(0.005)
    killed.kill()
    killed.join()
    assert not (folder / "killed" / INNER).exists(), "the run ended before it was killed: pass more training.steps"
    _train(*given)
    assert_alike(folder / "whole", folder / "killed", exactly=True)


def check_ranks(
    recipe: Recipe | str, folder: Path, records: Sequence[Record] = EIGHT, start: Path | None = None, **options: Any
) -> None:
    """Check that training with two processes equals training with one, except for rounding.

    For the arguments see `check_resume`.
    """
    store, chosen = toy_store(folder / "store", records), toy_recipe(recipe, **{"training.batch": 4, **options})
    _train(chosen, store, folder / "one", start)
    together(_train, chosen, store, folder / "two", start, processes=2)
    assert_alike(folder / "one", folder / "two")


def assert_alike(one: Path, other: Path, exactly: bool = False) -> None:
    """Assert that two runs have the same losses, gradient norms and weights; up to rounding unless `exactly`."""
    same = torch.testing.assert_close
    same(_losses(other), _losses(one), rtol=0 if exactly else 1e-4, atol=0)
    actual, wanted = (load_file(folder / INNER / WEIGHTS) for folder in (other, one))
    same(actual, wanted, rtol=0 if exactly else 1e-3, atol=0 if exactly else 1e-5)


def _train(recipe: Recipe, store: Path, out: Path, start: Path | None) -> None:
    with join_ranks(torch.device("cpu")):
        run(recipe, Store(store), out, None if start is None else open_model(start), Console(quiet=True))


def _in_process(threads: int, *given: Any) -> None:
    torch.set_num_threads(threads)
    load_plugins()
    _train(*given)


def _losses(out: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, text_of(out / "metrics.jsonl").splitlines())
    return [{**line["losses"], **{name: line[name] for name in ("step", "gradient_norm")}} for line in lines]
