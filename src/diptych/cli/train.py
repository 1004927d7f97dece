"""The verbs that train: `pretrain`, `finetune`, and `augment`, which adds captions to a training set."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from diptych.cli.app import LARGEST_SEED, AsJson, Features, Model, Out, Revision, SkipBad, SplitSeed, hold
from diptych.cli.groups import ComputingOptions, WritingOptions, grouped, options_named
from diptych.cli.outputs import OutFolder
from diptych.runtime.errors import RecipeError

if TYPE_CHECKING:
    from diptych.api.job import Options
    from diptych.api.run import Run


@dataclass(frozen=True)
class TrainingOptions:
    """Options of `pretrain` and `finetune`: the origin of regions, seeds, and settings of the recipe."""

    detector: str | None = Option(None, help="Detector for data that is not a store; default: that of --model.")
    features: Features = None
    seed: int | None = Option(
        None, min=0, max=LARGEST_SEED, help="Seed of weights, data order and random draws; default: the recipe's."
    )
    split_seed: SplitSeed = 0
    skip_bad: SkipBad = False
    epochs: float | None = Option(None, help="Passes over the training records, instead of --steps.")
    steps: int | None = Option(None, min=1, max=10**12, help="Steps to run: training.steps; default: the recipe's.")
    batch_size: int | None = Option(None, min=1, help="Samples of a step: training.batch; default: the recipe's.")
    lr: float | None = Option(None, help="Highest learning rate: optimizer.lr; default: the recipe's.")
    patience: int | None = Option(None, min=1, help="Validations without a rise that end it: training.patience.")
    settings: list[str] | None = Option(
        None, "--set", metavar="KEY=VALUE", help="Set a key of the recipe: optimizer.lr=3e-4; repeatable."
    )
    revision: Revision = None
    as_json: AsJson = False

    def assignments(self, **options: str | bool | None) -> list[str]:
        """Return KEY=VALUE for each option that sets a key of the recipe, followed by the values of --set.

        For instance, `data__vocabulary` sets the key data.vocabulary.
        """
        keys: dict[str, Any] = {name.replace("__", "."): value for name, value in options.items()}
        keys |= {"training.seed": self.seed, "training.steps": self.steps, "training.batch": self.batch_size}
        keys |= {"optimizer.lr": self.lr, "training.patience": self.patience}
        given = {key: value for key, value in keys.items() if value not in (None, "")}
        for name, value in {"lr": self.lr, "epochs": self.epochs}.items():
            if value is not None and not 0 < value < math.inf:
                raise RecipeError(f"--{name}: found {value:g}, expected a number above 0")
        return [*(f"{key}={json.dumps(value)}" for key, value in given.items()), *(self.settings or [])]

    def options(self, out: Path, settings: list[str]) -> Options:
        """Return the run's changes to its recipe, and the origin of its regions."""
        from diptych.api.job import Options

        own = (self.detector, self.features, self.split_seed, self.skip_bad, self.revision)
        return Options(out, self.epochs, settings, *own)

    def report(self, run: Run) -> None:
        """Print the path of the model folder. With --json, print it as JSON with the last logged step."""
        model = run.folder / "model"
        line = {"run": str(run.folder), "model": str(model), "last": run.metrics[-1] if self.as_json else None}
        print(json.dumps(line) if self.as_json else f"model folder: {model}")


@grouped
def pretrain(
    *,
    recipe: str = Argument(help="Recipe to train by, such as unified-vlp/small/pretrain; `diptych recipes` lists all."),
    data: list[str] = Option(..., help="Store, or data of your own, to extract first; several as NAME=STORE."),
    out: Out,
    model: str | None = Option(None, help="Model folder to start from; default: random weights."),
    init: str | None = Option(None, help="File, folder or hub id of BERT or UniLM weights; default: random."),
    vocab: str | None = Option(None, help="Vocabulary of --init; default: that next to it, --model's or a learnt one."),
    given: TrainingOptions,
) -> None:
    """Pre-train a model on images and their captions."""
    settings = given.assignments(init=init, data__vocabulary=vocab)
    from diptych.api.job import pretraining
    from diptych.data.extract.own_data import named_data

    hold(out, "run")
    given.report(pretraining(named_data(data), recipe, model, given.options(out, settings)).run())


@grouped
def finetune(
    *,
    task: str = Argument(help="Task to learn, such as caption or vqa; an unknown name lists them."),
    data: Path = Option(..., help="Store to train on, or data of your own, whose regions are extracted first."),
    model: str | None = Option(None, help="Model folder, run folder or user/name on the hub, to start from."),
    from_scratch: bool = Option(False, "--from-scratch", help="Start from random weights, by --recipe, not --model."),
    out: Out,
    recipe: str | None = Option(None, help="Recipe to train by; default: SYSTEM/small/TASK of --model's system."),
    without_images: bool = Option(
        False, "--without-images", help="Train a control, which sees blank regions; `compare` then gives the gain."
    ),
    given: TrainingOptions,
) -> None:
    """Train a pre-trained model on a task, with a store or data of your own."""
    settings = given.assignments(data__images=None if not without_images else False)
    begins = model is None and any(one.startswith("init=") for one in settings)
    if (model is None) != from_scratch and not begins:
        raise RecipeError("finetune needs --model MODEL, or --from-scratch with --recipe NAME: pass one of the two")
    from diptych.api.job import finetuning

    job = finetuning(task, data, model, recipe, given.options(out, settings))
    hold(out, "run")
    given.report(job.run())


@grouped
def augment(
    *,
    store: Path = Argument(help="Store whose captions are added to, made by `diptych extract`."),
    out: Annotated[Path, OutFolder("store")] = Option(
        ..., help="New store to write; the same command resumes after an interruption."
    ),
    model: Model,
    num_captions: float = Option(2, min=1, max=16, help="Most new captions of each image; a mean, such as 2.14."),
    split: str = Option("train", help="Split whose records get new captions; the others are copied."),
    writing: WritingOptions,
    computing: ComputingOptions,
) -> None:
    """Add generated captions to a training set: sampled (top_p 0.9 by default), or with --beams the most probable."""
    from diptych.data.store.store import Store
    from diptych.inference.open import open_folder
    from diptych.models.decoding.chosen import chosen_decoding
    from diptych.runs.evaluation.augment import SPARE
    from diptych.runs.evaluation.augment import augment as write_captions
    from diptych.tasks.caption import CAPTION

    start = open_folder(model, **vars(computing))
    CAPTION.check_offered(start.model, None if start.recipe is None else start.recipe.task, start.folder)
    hold(out, "store")
    given = writing.given if writing.given.keys() & {"beams", "top_k", "top_p"} else {"top_p": 0.9} | writing.given
    with options_named():
        decoding = chosen_decoding(start.decoding, SPARE * math.ceil(num_captions), writing.beams is None, **given)
    print(f"{write_captions(start, Store(store), out, num_captions, decoding, split, writing.seed).summary()}; {out}")
