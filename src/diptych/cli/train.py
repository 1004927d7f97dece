"""The verbs that train: demo, pretrain, finetune, and augment (new captions for a training set)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from diptych.cli.app import Features, Model, Out, Seed, SplitSeed, app, console, hold, open_folder
from diptych.cli.groups import (
    Beams,
    ComputingOptions,
    DrawSeed,
    MaxWords,
    MinWords,
    NoRepeatNgram,
    Temperature,
    TopK,
    TopP,
    grouped,
)
from diptych.runtime.errors import RecipeError

if TYPE_CHECKING:
    from diptych.models.decoding import DecodingOptions
    from diptych.runs.folder import ModelFolder

NOTHING = "none"  # --model: random weights
# Read from the folders: importing the table of systems would slow --help down.
_FOLDERS = sorted((Path(__file__).parents[1] / "systems").glob("*/presets.py"))
_SYSTEMS = ", ".join(file.parent.name.replace("_", "-") for file in _FOLDERS)


@dataclass(frozen=True)
class TrainingOptions:
    """Options of pretrain and finetune: the source of regions, seeds, keys of the recipe."""

    detector: str | None = Option(None, help="Detector for data that is not a store; default: that of --model.")
    features: Features = None
    seed: int | None = Option(None, help="Seed of weights, data order and random draws; default: the recipe's.")
    split_seed: SplitSeed = 0
    settings: list[str] | None = Option(
        None, "--set", metavar="KEY=VALUE", help="Set a key of the recipe: optimizer.lr=3e-4; repeatable."
    )

    def assignments(self, **options: str | None) -> list[str]:
        """Return options named after recipe keys (`data__vocabulary`) as KEY=VALUE, followed by those of --set."""
        keys = {name.replace("__", "."): value for name, value in options.items()} | {"training.seed": self.seed}
        given = {key: value for key, value in keys.items() if value not in (None, "")}
        return [*(f"{key}={json.dumps(value)}" for key, value in given.items()), *(self.settings or [])]

    def regions(self, start: ModelFolder | None) -> tuple[Any, ...]:
        """Return how `store_of` extracts regions of data that is not a store: detector, console, seed, features."""
        own = str(start.folder) if start is not None else None
        return self.detector or own, console(), self.split_seed, self.features


@app.command()
def demo(
    out: Path = Option(Path("demo"), help="Folder of the demo; the same command resumes after an interruption."),
    fast: bool = Option(False, "--fast", help="Run a demo of under 60 seconds, to show that it works, not how well."),
    thorough: bool = Option(
        False, "--thorough", help="Compare 100 to 1,000 labelled scenes over 3 seeds (3 CPU-hours)."
    ),
    system: str = Option("unified-vlp", help=f"System to run: {_SYSTEMS}, or one of an installed package."),
    seed: Seed = 0,
) -> None:
    """Run the whole pipeline on drawn images: draw, extract, pre-train, fine-tune, caption and answer."""
    from diptych.runtime.processes import begin_loading

    hold(out)
    begin_loading()
    from diptych.runs.demo.demo import DemoConfig
    from diptych.runs.demo.demo import demo as run_demo
    from diptych.runs.demo.systems import DEFAULT
    from diptych.runs.demo.thorough import ThoroughConfig
    from diptych.runs.demo.thorough import thorough as compare_thoroughly

    config = DemoConfig.fast(seed) if fast else DemoConfig(seed=seed)
    if thorough and system != DEFAULT:
        raise RecipeError(f"--thorough supports {DEFAULT} only; leave out --system, or --thorough")
    if thorough:
        compare_thoroughly(out, ThoroughConfig.of(config), console())
    else:
        run_demo(out, config, console(), system)


@app.command()
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
    from diptych.runs.extraction import stores_of
    from diptych.runs.initialisation import vocabulary_settings
    from diptych.runs.stages import fit_stages, run_stages
    from diptych.runtime.progress import tell
    from diptych.systems import find_stages

    settings = given.assignments(init=init, data__vocabulary=vocab)
    hold(out)
    start = open_folder(model) if model is not None else None
    named, lost = find_stages(recipe), ""
    if start is not None:
        named, lost = fit_stages(named, start)
    chosen = named.override([*vocabulary_settings(settings), *settings])
    chosen.check_pretrains()
    chosen.recipes[0].check_begun()
    chosen.claimed(out)
    if lost:
        tell(console(), lost)
    store = stores_of(data, out, *given.regions(start))
    made = run_stages(chosen, store, out, start=start, console=console())
    print(f"model folder: {made.folder}")


@app.command()
@grouped
def finetune(
    *,
    task: str = Argument(help="Task to learn, such as caption or vqa; an unknown name lists them."),
    data: Path = Option(..., help="Store to train on, or data of your own, whose regions are extracted first."),
    model: str = Option(..., help="Model folder, run folder or user/name on the hub; none: random, by --recipe."),
    out: Out,
    recipe: str | None = Option(None, help="Recipe to train by; default: SYSTEM/small/TASK of --model's system."),
    given: TrainingOptions,
) -> None:
    """Train a pre-trained model on a task, with a store or data of your own."""
    from diptych.runs.extraction import store_of
    from diptych.runs.initialisation import vocabulary_settings
    from diptych.runs.run import fit_named, fit_to, run
    from diptych.runtime.progress import tell
    from diptych.systems import RECIPES, SYSTEMS, find_recipe, hindrance
    from diptych.systems.recipe import claimed
    from diptych.tasks import find_learnt

    spec = find_learnt(task)
    start = open_folder(model) if model != NOTHING else None
    lost = ""
    name = recipe or (f"{start.architecture.system}/small/{spec.name}" if start is not None else None)
    if name is None:
        raise RecipeError(
            f"Missing --recipe: --model none starts from random weights, and a recipe names the system, such as "
            f"SYSTEM/small/{spec.name}; `diptych recipes {spec.name}` lists them"
        )
    if recipe is None and name not in RECIPES:
        system = name.partition("/")[0]
        able = [one.removesuffix(f"/small/{spec.name}") for one in RECIPES if one.endswith(f"/small/{spec.name}")]
        why = hindrance(SYSTEMS[system], spec) or f"there is no recipe {name}"
        raise RecipeError(
            f"{model} is of {system}, which has no small recipe of {spec.name} ({why}); take a model of "
            f"{', '.join(able) or 'another system'}, or give --recipe (`diptych recipes --system {system}` lists them)"
        )
    chosen = find_recipe(name)
    if chosen.task != spec.name:
        raise RecipeError(f"{chosen.name} trains {chosen.task}, and the task is {spec.name}; choose one of the two")
    if start is not None:
        chosen, lost = fit_named(chosen, start) if recipe is not None else (fit_to(chosen, start), "")
    settings = given.assignments()
    chosen = chosen.override([*vocabulary_settings(settings), *settings] if start is None else settings)
    chosen.check_begun()
    hold(out)
    claimed(out, chosen)
    if lost:
        tell(console(), lost)
    store = store_of(data, out / "store", *given.regions(start))
    made = run(chosen, store, out, start=start, console=console())
    print(f"model folder: {made.model.folder}")


@dataclass(frozen=True)
class SamplingOptions:
    """Options of sampling new captions; the recipe sets what is not given."""

    beams: Beams = None
    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_words: MinWords = None
    max_words: MaxWords = None
    no_repeat_ngram: NoRepeatNgram = None

    def options(self, usual: DecodingOptions, captions: int) -> DecodingOptions:
        """Return options of sampling (by default nucleus sampling with top_p 0.9), or of beam search with --beams."""
        from diptych.models.decoding.chosen import chosen_decoding

        free = self.beams is None and self.top_k is None and self.top_p is None
        return chosen_decoding(usual, captions, self.beams is None, **vars(self) | ({"top_p": 0.9} if free else {}))


@app.command()
@grouped
def augment(
    *,
    store: Path = Argument(help="Store whose captions are added to, made by `diptych extract`."),
    out: Path = Argument(help="New store to write; the same command resumes after an interruption."),
    model: Model,
    captions: int = Option(2, min=1, help="Most new captions of each image."),
    split: str = Option("train", help="Split whose records get new captions; the others are copied."),
    drawing: SamplingOptions,
    seed: DrawSeed = 0,
    computing: ComputingOptions,
) -> None:
    """Write new captions for a training set, sampled, or with --beams the likeliest."""
    from diptych.data.store.store import Store
    from diptych.models.decoding import DecodingOptions
    from diptych.runs.evaluation.augment import SPARE
    from diptych.runs.evaluation.augment import augment as write_captions

    hold(out)
    start = open_folder(model, **vars(computing))
    usual = start.recipe.decoding if start.recipe is not None else DecodingOptions()
    decoding = drawing.options(usual, SPARE * captions)
    print(f"{write_captions(start, Store(store), out, captions, decoding, split, seed).summary()}; {out}")
