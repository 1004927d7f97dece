"""The initial weights of a run: random, from files that the recipe names, or from a trained model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from diptych.core import FeatureContract
from diptych.core.folders import DETECTOR
from diptych.data.leakage import Fingerprints, SeenImages
from diptych.data.store.pixels import Colours
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.models import SystemModel
from diptych.models.system import NETWORK
from diptych.models.weights import ImportReport, digest, load_into, read_as_weights
from diptych.runs.familiarity import Familiarity
from diptych.runs.folder import ModelFolder
from diptych.runs.known_words import bert_settings, vocabulary_settings
from diptych.runs.learner import Learner
from diptych.runs.run_folder import RunFolder
from diptych.runs.words import tokens_of_run, unknown_words
from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, RecipeError, counted
from diptych.systems import RECIPES, SYSTEMS, hindrance
from diptych.systems.recipe import OF_STORE, TARGETS, Recipe
from diptych.tasks import TaskSpec
from diptych.tasks.answers import Answers
from diptych.tasks.spec import Heads

PIXELS = ("pixels_shorter", "pixels_longer", "pixels_colours")  # settings of `data` for reading images as pixels


class Start:
    """The initial weights of a run. The base class means random weights; the subclasses are `Weights` and `Trained`."""

    speaks: bool = False  # True: the initial weights can already read and generate text
    source: str | None = None  # path of the start model's folder
    answers: Answers | None = None
    contract: FeatureContract | None = None  # of the start model's features
    detector: Path | None = None
    familiarity: Familiarity | None = None

    @staticmethod
    def of(model: ModelFolder | None) -> Start:
        """Return the weights of `model` as initial weights, or random weights if `model` is None."""
        return Nothing() if model is None else Trained(model)

    def digest(self) -> str | None:
        """Return a digest of the start model's weights, or None if the run starts without a model."""
        return None

    def by(self, recipe: Recipe) -> Start:
        """Return `Weights` if the recipe sets `init` or `network_init`, else this object."""
        return Weights(recipe) if recipe.init is not None or recipe.network_init is not None else self

    def recipe_name(self, spec: TaskSpec) -> str:
        """Return the name of the default recipe for a task. Raises RecipeError if this start has no default recipe."""
        raise RecipeError(
            f"Missing --recipe: with --from-scratch, only the recipe names the system; pass one such as "
            f"SYSTEM/small/{spec.name} (`diptych recipes {spec.name}` lists them)"
        )

    def fit(self, recipe: Recipe, named: bool = True) -> tuple[Recipe, str]:
        """Return the recipe with the start model's sizes, and a line about settings that are dropped ("": none).

        `named`: True if the user chose the recipe. Raises RecipeError if the recipe does not fit the model.
        """
        return recipe, ""

    def with_settings(self, recipe: Recipe, settings: Sequence[str]) -> Sequence[str]:
        """If `recipe` or `settings` set `init`, add the settings that follow from its files in front of `settings`.

        Raises RecipeError or CheckpointError if a setting contradicts the files, or if they are of another kind.
        """
        own = [] if recipe.init is None or "init" in recipe.wanted else [f"init={recipe.init}"]
        given = [*own, *settings]
        return [*vocabulary_settings(given), *bert_settings(recipe, given), *settings]

    def check(self, recipe: Recipe, store: Store) -> None:
        """Raise RecipeError or CheckpointError if the recipe or the store does not fit these weights."""
        if recipe.objectives.improves and not self.speaks:
            raise RecipeError(
                f"{recipe.name} needs a trained captioner: pass its folder (of diptych finetune caption) with --model"
            )

    def tokens(self, folder: RunFolder, store: Store) -> Tokens:
        """Return the tokeniser of a run that starts from these weights."""
        return tokens_of_run(folder, store)

    def notes(self, learner: Learner) -> Iterator[str]:
        """Yield warnings before the run."""
        recipe, store = learner.recipe, learner.store
        if store.contract.weights and store.detector() is None:
            yield f"{store.folder} has no detector, so the model cannot read image files; extract again to add one"
        frozen = recipe.model.frozen_stages
        if recipe.network_init is None and frozen:
            yield (
                f"the first {frozen} stages of the network that reads pixels are frozen (model.network_frozen) and "
                "keep their random initial weights; start from a detector (--set network_init=FOLDER) or "
                "from a model with a trained network (--model; `diptych import` makes one of an official checkpoint), "
                "or train them with --set model.network_frozen=0"
            )

    def load(self, model: SystemModel, learner: Learner, begun: bool) -> Iterator[str]:
        """Load the initial weights into `model`, the new model of a run. Yield notes.

        `begun`: True if the run has checkpoints, from which it will load all weights.
        """
        yield from ()

    def fingerprint(self, recipe: Recipe) -> str:
        """Return a digest of the recipe and the start model's weights.

        Checkpoints can only be resumed with the same digest.
        """
        return hashlib.sha256(_bound(recipe).encode()).hexdigest()

    def seen(self, prints: Fingerprints) -> SeenImages:
        """Return the fingerprints of all images that the trained model has seen: `prints` and the start model's."""
        return SeenImages.of(prints, None, begun=False)


class Nothing(Start):
    """Random weights."""


class Weights(Start):
    """Weights of BERT, another system or a detector, from the paths in `init` and `network_init` of the recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.speaks = recipe, recipe.init is not None

    def check(self, recipe: Recipe, store: Store) -> None:
        super().check(recipe, store)
        recipe.check_begun()
        if recipe.init is not None and recipe.data.vocabulary is None:
            raise RecipeError(
                "the weights of `init` need their own vocab.txt; pass it with --vocab FILE (data.vocabulary)"
            )

    def load(self, model: SystemModel, learner: Learner, begun: bool) -> Iterator[str]:
        recipe = self.recipe
        if begun:  # resumed: the run's checkpoint has the weights
            return
        if (given := recipe.network_init) is not None:  # before `init`, which may have these layers too
            source = str(learner.store.folder / DETECTOR) if given == OF_STORE else given
            try:
                report = initialise_network(model, recipe.system, source, recipe.data.pixels_colours)
                yield f"{source}: {report.lines()[-1]}"
            except CheckpointError as error:
                if given != OF_STORE:
                    raise
                yield f"the layers that begin as the detector's in the paper have random weights: {error}"
        if recipe.init is not None:
            report = initialise(model, recipe.system, recipe.init)
            fresh = {".".join(name.split(".")[: 2 if name.startswith("heads.") else 1]) for name in report.missing}
            random = f"; random weights: {', '.join(sorted(fresh))}" if fresh else ""
            yield f"{recipe.init}: {report.lines()[-1]}{random}"


class Trained(Start):
    """The weights of a model folder."""

    def __init__(self, model: ModelFolder) -> None:
        self.model, self.source, self.speaks = model, str(model.folder), True
        self.answers, self.contract = model.answers, model.contract
        self.detector, self.familiarity = model.detector, model.familiarity

    def digest(self) -> str:
        return digest(self.model.model)

    def by(self, recipe: Recipe) -> Start:
        return self

    def recipe_name(self, spec: TaskSpec) -> str:
        system = self.model.architecture.system
        name = f"{system}/small/{spec.name}"
        if name in RECIPES:
            return name
        able = [one.removesuffix(f"/small/{spec.name}") for one in RECIPES if one.endswith(f"/small/{spec.name}")]
        why = hindrance(SYSTEMS[system], spec) or f"there is no recipe {name}"
        raise RecipeError(
            f"{self.source} is a model of {system}, which has no small recipe for {spec.name} ({why}); use a model of "
            f"{', '.join(able) or 'another system'}, or pass --recipe (`diptych recipes --system {system}` lists them)"
        )

    def fit(self, recipe: Recipe, named: bool = True) -> tuple[Recipe, str]:
        return fit_named(recipe, self.model) if named else (fit_to(recipe, self.model), "")

    def with_settings(self, recipe: Recipe, settings: Sequence[str]) -> Sequence[str]:
        return settings

    def check(self, recipe: Recipe, store: Store) -> None:
        for name in ("init", "network_init"):
            if getattr(recipe, name) is not None and name not in recipe.wanted:
                raise RecipeError(f"`{name}` and --model are mutually exclusive: both are initial weights, so pass one")
        wanted, there = recipe.model.max_regions, self.model.architecture.config.max_regions
        if recipe.model.regions_fixed and wanted != there:
            raise RecipeError(f"model.max_regions={wanted}: {self.source} was built with {there}; set it to {there}")
        # A model that reads pixels gets new heads for other classes (`_load`). Stored features depend on the classes.
        read = recipe.reads - ({"classes"} if recipe.model.reads_pixels else set())
        self.model.accept(store.contract, store.folder, read)

    def tokens(self, folder: RunFolder, store: Store) -> Tokens:
        """Return the start model's tokeniser. Raises RecipeError if the recipe names another one."""
        data = folder.recipe.data
        if data.vocabulary is not None:
            given = Tokens.from_vocabulary(Path(data.vocabulary), data.lowercase)
            if given.to_json() != self.model.tokens.to_json():
                raise RecipeError(
                    f"{data.vocabulary} ({given.vocabulary.size} tokens) is not the tokeniser of {self.source} "
                    f"({self.model.tokens.vocabulary.size} tokens), which its weights were trained with; leave out "
                    "data.vocabulary, or start without --model"
                )
        return self.model.tokens

    def notes(self, learner: Learner) -> Iterator[str]:
        spec, data = learner.spec, learner.recipe.data
        if unknown := unknown_words(learner.tokens, learner.store, data.split, {spec.field, *spec.also}):
            shown = ", ".join(f"{word[:30]} ({count})" for word, count in unknown.most_common(5))
            yield (
                f"warning: {self.source} has no tokens for words of the training texts: {shown}; it reads and writes "
                "them as [UNK]; to learn your words, start without a model: --from-scratch "
                f"--recipe {learner.recipe.name}"
            )

    def load(self, model: SystemModel, learner: Learner, begun: bool) -> Iterator[str]:
        yield from _load(model, self.model, learner.answers, learner.store.contract.class_names)
        if learner.spec.training.begin is not None:
            learner.spec.training.begin(learner.task, model.heads, Heads(self.model.model.heads, self.answers))

    def fingerprint(self, recipe: Recipe) -> str:
        return digest(self.model.model, _bound(recipe))

    def seen(self, prints: Fingerprints) -> SeenImages:
        return SeenImages.of(prints, self.model.seen, begun=True)


def _bound(recipe: Recipe) -> str:
    return json.dumps(recipe.bound, sort_keys=True)


def _load(model: SystemModel, start: ModelFolder, answers: Answers | None, kinds: tuple[str, ...]) -> Iterator[str]:
    """Load the weights of `start` into `model`.

    Heads for other classes than `kinds`, and an imported model's for other answers, stay random.

    The same holds for answer heads if `answers` are of another task.

    Yields a note about such heads, and about embeddings that get more rows.
    """
    tensors, wanted = start.model.state_dict(), model.state_dict()
    other: list[str] = []
    if start.untrained:
        other = [name for name in wanted if name in tensors and tensors[name].shape != wanted[name].shape]
        if body := [name for name in other if not name.startswith("heads.")]:
            raise CheckpointError(
                f"{start.folder} was made for {start.architecture.config.classes} classes of regions, but the store "
                f"has another number, so {body[0]} does not fit; extract with a detector of that many classes, or pass "
                "your own regions: diptych extract DATA --out OUT --detector given --features PATH"
            )
        # Without a list of answers, it is unknown which answer an output of the head means.
        other += [name for name in tensors if name.startswith("heads.answer.") and start.answers is None]
    elif start.contract.class_names != kinds:
        heads = tuple(f"heads.{head}." for head, part in TARGETS.items() if part == "classes")
        other = [name for name in tensors if name.startswith(heads)]
    if fresh := sorted({name.split(".")[1] for name in other if name in wanted}):
        yield f"{start.folder}: its heads for other classes or answers get random weights: {', '.join(fresh)}"
    labelled, before = "", start.answers
    if answers is not None and before is not None and answers.task != before.task:
        other += [name for name in tensors if name.startswith("heads.answer.")]
        sized = {name: value for name, value in tensors.items() if name.startswith("heads.")}
        other += [name for name, old in sized.items() if wanted.get(name, old).shape != old.shape]
    elif answers is not None and before is not None and len(answers.names) > len(before.names):
        added = answers.names[len(before.names) :]
        yield f"{start.folder}: its list of labels grows by {counted(added, 'labels')}: {', '.join(added)[:200]}"
        labelled = f"heads.{answers.task}."
    tensors = {name: value for name, value in tensors.items() if name not in other}
    for name, old in tensors.items():
        new = wanted.get(name, old)
        grows = (labelled and name.startswith(labelled)) or (model.config.grows and len(new.shape) > 1)
        if grows and new.shape[1:] == old.shape[1:] and len(new) > len(old):
            tensors[name] = torch.cat([old.to(new), new[len(old) :]])
            yield f"{start.folder}: {name} grows from {len(old)} to {len(new)} rows; new rows are random"
    load_into(model, tensors)


def fit_to(recipe: Recipe, start: ModelFolder) -> Recipe:
    """Return the recipe with the sizes and settings of the start model.

    Raises RecipeError if the start model is of another system.
    """
    if recipe.system != start.architecture.system:
        raise RecipeError(
            f"{recipe.name} trains {recipe.system}, but {start.folder} is a model of {start.architecture.system}; "
            "choose a recipe and a model of the same system"
        )
    config = start.architecture.config
    shape = {name: getattr(config, name) for name in type(recipe.model).model_fields}
    shape |= {name: max(shape[name], getattr(recipe.model, name)) for name in recipe.model.grows}
    model = type(recipe.model)(**shape)
    fitted = derive(recipe, model=model, **dict.fromkeys(recipe.wanted))
    return _with_network_settings(fitted, start.recipe, model.reads_pixels)


def fit_named(recipe: Recipe, start: ModelFolder) -> tuple[Recipe, str]:
    """Like `fit_to`, but keep settings of the recipe on which no weight depends, such as the number of regions.

    Also return a line about settings that are dropped ("": none). Raises RecipeError if the recipe sets another
    architecture than the start model's.
    """
    fitted = fit_to(recipe, start)
    own = recipe.model.of_the_run | (frozenset() if recipe.model.regions_fixed else {"max_regions"})
    fitted = derive(fitted, model={name: getattr(recipe.model, name) for name in own})
    named, kept = recipe.model.model_dump(), fitted.model.model_dump()
    lost = [name for name in named if named[name] != kept[name] and "given" not in (named[name], kept[name])]
    fields = type(recipe.model).model_fields
    structural = [name for name in lost if name in recipe.model.structural and named[name] != fields[name].default]
    if structural:
        raise RecipeError(
            f"{recipe.name} does not fit the model {start.folder}: "
            + "; ".join(f"model.{name}={named[name]} instead of {kept[name]}" for name in structural)
            + "; choose a model with these settings, or another recipe (`diptych recipes` lists them), or start "
            "with random weights: --from-scratch"
        )
    dropped = ", ".join(f"{name} {kept[name]} (recipe: {named[name]})" for name in lost)
    return fitted, f"{start.folder} keeps its architecture: {dropped}" if dropped else ""


def _with_network_settings(recipe: Recipe, before: Recipe | None, reads_pixels: bool) -> Recipe:
    """Copy the settings of the network that reads pixels from `before`, the start model's recipe.

    If the model reads no pixels, remove these settings.
    """
    groups, data, objectives = recipe.optimizer.lr_multipliers, recipe.data, recipe.objectives
    if not reads_pixels:
        groups = {prefix: share for prefix, share in groups.items() if prefix not in _of_network(groups)}
        objectives = objectives.without_pixels()
    elif before is not None:
        groups = {**_of_network(before.optimizer.lr_multipliers), **groups}
        data = derive(data, **{name: getattr(before.data, name) for name in PIXELS})
    return derive(recipe, optimizer={"lr_multipliers": groups}, data=data, objectives=objectives)


def _of_network(groups: dict[str, float]) -> dict[str, float]:
    return {prefix: share for prefix, share in groups.items() if prefix.startswith(NETWORK)}


def initialise(model: SystemModel, system: str, source: str) -> ImportReport:
    """Load `source`, weights of BERT or another system, into a model of `system` (the recipe's setting `init`)."""
    begin = SYSTEMS[system].start
    if begin is None:
        raise RecipeError(f"{system} cannot begin from weights of another system; leave out `init`")
    with read_as_weights(source):
        return begin(model, source)


def initialise_network(model: SystemModel, system: str, source: str, colours: Colours) -> ImportReport:
    """Load the layers of a detector from `source`, its folder or a weights file (the setting `network_init`)."""
    begin = SYSTEMS[system].start_network
    if begin is None or not model.config.begins_from_detector:
        raise RecipeError(
            "`network_init` has weights of a detector's layers, but the model has no such layers; set model.network "
            "(VL-BERT) or model.fc7 (Unified VLP), or leave out `network_init`"
        )
    with read_as_weights(source):
        return begin(model, source, colours)
