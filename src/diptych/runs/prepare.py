"""Resolve and check everything that a run needs, before any file is written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from diptych.core import Record, Task, names_for_tags
from diptych.core.record import READ
from diptych.core.shares import FEWEST
from diptych.data.store.corpus import Corpus, Lines
from diptych.data.store.loader import Loader, ToSamples, UpdateChoice
from diptych.data.store.store import Store, iterate, splits_in
from diptych.data.store.tokens import FILE as TOKENS
from diptych.data.store.tokens import Tokens
from diptych.models import ResolvedConfig
from diptych.objectives import Schedule
from diptych.runs.folder import Architecture, ModelFolder
from diptych.runs.run_folder import RunFolder
from diptych.runs.self_critical import SelfCriticalTraining
from diptych.runs.supervised import SupervisedTraining, more_regions
from diptych.runs.tasks import make_task, pixels_of, shown_to
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.runtime.files import bytes_of, checksum, write_atomically
from diptych.systems import SYSTEMS
from diptych.systems.recipe import Recipe
from diptych.tasks import TaskSpec, find_task
from diptych.tasks.answers import OF_VQA, Answers
from diptych.tasks.caption import pretraining_texts
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.tasks.spec import LeavesOut, TrainingRecords

VOCABULARY_SIZE = 8000
VOCABULARY_LINES = 20_000  # lines of a text corpus that a vocabulary is trained on, with all captions
TOKENS_CHECK = "tokenizer.check"  # checksum of a run's tokeniser


@dataclass(frozen=True)
class Plan:
    """A resolved run: everything that the recipe names, looked up once."""

    recipe: Recipe
    spec: TaskSpec
    store: Store
    start: ModelFolder | None  # the model that it starts from
    tokens: Tokens
    answers: Answers | None
    task: Task
    method: SupervisedTraining
    schedule: Schedule
    architecture: Architecture
    records: list[int]  # numbers of the training records in the store
    held_out: list[int]  # numbers of the validation records; may be empty

    def notes(self) -> Iterator[str]:
        """Yield warnings before the run."""
        if not self.held_out and self.recipe.training.validate_every is not None:
            yield (
                f"no records in split {self.recipe.data.validation!r}: nothing to validate on, so the last weights are "
                "kept; choose another split with --set data.validation=NAME"
            )
        if 0 < len(self.held_out) < FEWEST and self.recipe.training.validate_every is not None:
            yield (
                f"warning: split {self.recipe.data.validation!r} has {len(self.held_out)} images to validate on, fewer "
                f"than {FEWEST}: its scores are unreliable, and they choose the weights"
            )
        objectives = [one.name for one in self.schedule.objectives]
        if self.spec.pretrains and self.held_out and len(objectives) > 1:
            yield (
                f"validation watches the likelihood of {self.schedule.watched} alone, which chooses the weights: "
                f"the losses of {', '.join(objectives)} have no common unit"
            )
        most = self.recipe.model.max_regions
        yield from more_regions(self.store, self.records, most)
        if self.spec.training.notes is not None:
            yield from self.spec.training.notes(self.task, TrainingRecords(self.store, self.records, most))
        if self.start is None and self.store.contract.weights and self.store.detector() is None:
            yield f"{self.store.folder} has no detector, so the model will read features only; extract again to add it"
        yield from self._frozen_at_random()
        part, batch = self.recipe.training.micro_batch, self.recipe.training.batch
        if part is not None and (part == "auto" or part < batch) and self.schedule.compares_pairs:
            few = "as many as memory takes" if part == "auto" else f"{part} pairs a process"
            yield (
                f"each text is contrasted only with the pictures of its micro-batch: {few}, of the {batch} of a step; "
                "training.micro_batch=null compares them all, if memory allows"
            )
        yield from self.method.notes(self.spec, self.store, self.records, self.tokens)

    def _frozen_at_random(self) -> Iterator[str]:
        frozen = self.recipe.model.frozen_stages
        if self.start is None and self.recipe.network_init is None and frozen:
            yield (
                f"the first {frozen} stages of the network that reads pixels are frozen (model.network_frozen) and "
                "keep the random weights that they begin from; start from a detector (--set network_init=FOLDER) or "
                "from a model with a trained network (--model; `diptych import` makes one of an official checkpoint), "
                "or train them with --set model.network_frozen=0"
            )

    def batches(self) -> Loader:
        """Return the training batches. Raises DataError if there is nothing to train on."""
        training, data = self.recipe.training, self.recipe.data
        corpus = None
        if data.text is not None:
            corpus = Corpus(Path(data.text), self.tokens, data.text_words, data.text_joined)
        samples = partial(self.method.samples, self.task)
        try:
            return self._loader(
                self.records, samples, self.schedule, training.batch, training.seed, mirror=data.mirror,
                needs_regions=self.recipe.model.needs_regions, corpus=corpus, alone=data.text_share,
            )  # fmt: skip
        except DataError as error:
            if lines := list(self._unknown()):
                raise DataError(f"{error}. {lines[0]}") from error
            raise

    def held_out_batches(self) -> Loader:
        """Return the validation batches, as the first update prepares them. They are the same at each validation."""
        size = self.recipe.training.batch if self.recipe.model.reads_pixels else 64
        return self._loader(self.held_out, self.task.samples, self.schedule.first, size, 0)

    def _loader(
        self, records: list[int], samples: ToSamples, updates: UpdateChoice, batch: int, seed: int, **more: Any
    ) -> Loader:
        shape = self.recipe.model
        return Loader(
            self.store, records, samples, updates, batch, seed, max_regions=shape.max_regions,
            most_regions=shape.most_regions, pixels=pixels_of(self.recipe), **more,
        )  # fmt: skip

    def left_out(self, batches: Loader) -> Iterator[str]:
        """Yield warnings about records that the batches leave out: count, example, remedy."""
        if empty := batches.without_regions:
            yield (
                f"{len(empty)} of {len(self.records)} pictures are left out: no region was found in them (the first: "
                f"{empty[0]}), and {self.recipe.system} sees nothing else; lower the detector's threshold and extract"
            )
        yield from self._unknown()

    def _unknown(self) -> Iterator[str]:
        if isinstance(self.task, LeavesOut) and (unknown := self.task.unknown):
            key, caption = next(iter(unknown.items()))
            yield (
                f"{len(unknown)} captions are left out: the vocabulary knows none of their words (the first: {key}, "
                f"{caption!r}); learn one from such words (`diptych tokenizer train`), or translate them"
            )


def plan(folder: RunFolder, store: Store, start: ModelFolder | None) -> Plan:
    """Resolve and check a run. Raises RecipeError, DataError or CheckpointError for anything that would fail later."""
    recipe, out = folder.recipe, folder.path
    spec, store = find_task(recipe.task), shown_to(recipe, store)
    if not recipe.data.images and spec.scoring.baseline_regions:
        raise RecipeError(
            f"{recipe.name} points at regions, which data.images=false (--without-images) hides; remove it"
        )
    if recipe.training.epochs is not None:
        raise RecipeError(f"{recipe.name} lasts by training.epochs: set training.steps, or call finetune or pretrain")
    _check_start(recipe, start)
    if start is not None:
        start.accept(store.contract, store.folder)
    store.detector()
    objectives = recipe.objectives
    method = (
        SelfCriticalTraining(recipe, objectives)
        if isinstance(objectives, SelfCriticalObjectives)
        else SupervisedTraining(recipe)
    )
    method.check(start)
    records = _choose(recipe, store)
    _check_text(recipe, spec)
    tokens = _own_tokens(recipe, start) if start is not None else tokens_of_run(recipe, store, out, folder.resumes)
    answers = _answers(recipe, spec, store, start)
    task = make_task(recipe, tokens, answers, spec)
    schedule = replace(method.schedule(store, tokens, records, out), seed=recipe.training.seed)
    architecture = _architecture(recipe, spec, store, tokens, schedule, answers)
    # Only records with queries of this task.
    held_out = [index for index in store.split(recipe.data.validation) if task.queries(store.words(index))]
    held_out = held_out[: recipe.data.validation_records]
    return Plan(recipe, spec, store, start, tokens, answers, task, method, schedule, architecture, records, held_out)


def _answers(recipe: Recipe, spec: TaskSpec, store: Store, start: ModelFolder | None) -> Answers | None:
    """Return the start model's answers, or collect those of the task, which takes no other task's list."""
    kept, data = start.answers if start is not None else None, recipe.data
    if spec.training.answers is None or (kept is not None and kept.task == spec.name):
        return kept
    made = spec.training.answers(iterate(store, data.split), data.answers_at_least, data.answers_most)
    return replace(made, task=spec.name)


def _check_start(recipe: Recipe, start: ModelFolder | None) -> None:
    """Raise RecipeError if recipe and start model disagree on where the weights come from."""
    if start is None:
        recipe.check_begun()
        if recipe.init is not None and recipe.data.vocabulary is None:
            raise RecipeError(
                "init loads weights with a vocabulary; give their vocab.txt: --vocab FILE (data.vocabulary)"
            )
        return
    for name in ("init", "network_init"):
        if getattr(recipe, name) is not None and not (name == "init" and recipe.wants_init):
            raise RecipeError(f"{name} and a model to start from exclude each other: give one")
    wanted, there = recipe.model.max_regions, start.architecture.config.max_regions
    if recipe.model.regions_fixed and wanted != there:
        raise RecipeError(f"model.max_regions={wanted}: {start.folder} was built for {there}; leave it at {there}")


def in_split(store: Store, split: str, option: str) -> list[int]:
    """Return the numbers of the records of one or more splits. Raises DataError for an empty one.

    `option`: command-line option that chooses the split, for the error.
    """
    if missing := sorted(splits_in(split) - store.splits.keys()):
        known = ", ".join(f"{name} ({count})" for name, count in store.splits.items()) or "none at all"
        raise DataError(f"{store.folder} has no records in split {missing[0]!r}; it has {known}; choose with {option}")
    return store.split(split)


def words_of(record: Record) -> list[str]:
    """Return all texts of a record for a vocabulary; tags are replaced by the names of their objects."""
    return record.changed({"tagged": lambda text: names_for_tags(text, record.objects)}).marked(*READ)


def training_texts(store: Store, validation: str = "val") -> list[str]:
    """Return the texts of all splits but those for validation and tests.

    Texts of `Record.more` are included only if they have a word that no other text has. Data that gain a task thus keep
    their vocabulary as long as it has all words.
    """
    scored = splits_in(validation) | {"test", "test_rare"}
    texts: list[str] = []
    more: list[str] = []
    for record in iterate(store):
        if record.split not in scored:
            texts += words_of(replace(record, more={}))
            more += words_of(Record(record.key, more=record.more))
    known = {word for text in texts for word in text.split()} if more else set()
    return texts + [text for text in more if not known.issuperset(text.split())]


def _choose(recipe: Recipe, store: Store) -> list[int]:
    there = in_split(store, recipe.data.split, "--set data.split=NAME")
    if recipe.data.records is None or recipe.data.records >= len(there):
        return there
    return sorted(Random(f"{recipe.training.seed}/records").sample(there, recipe.data.records))


def tokens_of_run(recipe: Recipe, store: Store, out: Path, again: bool) -> Tokens:
    """Return the run's tokeniser: given by the recipe, read from the run's folder, or trained on the data."""
    if recipe.data.vocabulary is not None:
        return Tokens.from_vocabulary(Path(recipe.data.vocabulary), recipe.data.lowercase)
    if again and (out / TOKENS).is_file():
        return _kept_tokens(out)
    texts = training_texts(store, recipe.data.validation)
    if find_task(recipe.task).pretrains:  # answers are no texts that models read elsewhere
        records = (one for one in iterate(store, recipe.data.split) if not one.captions)
        texts += [text for record in records for text in pretraining_texts(record)]
    if recipe.data.text is not None:
        lines = Lines(Path(recipe.data.text))
        texts += [lines[number] for number in range(min(len(lines), VOCABULARY_LINES))]
    return Tokens.train(texts, VOCABULARY_SIZE, recipe.data.lowercase, recipe.data.tokens)


def keep_tokens(tokens: Tokens, out: Path) -> None:
    """Save the tokeniser in the run's folder, with a checksum: a changed file would give other ids on resumption."""
    tokens.save(out)
    write_atomically(out / TOKENS_CHECK, f"{checksum(out / TOKENS)}\n".encode())


def _kept_tokens(out: Path) -> Tokens:
    check = out / TOKENS_CHECK  # runs written before 0.1 lack this file
    if check.exists() and bytes_of(check) != f"{checksum(out / TOKENS)}\n".encode():
        raise CheckpointError(
            f"{out / TOKENS} is not what was written (its checksum differs from {TOKENS_CHECK}): the same ids would "
            "mean other words; copy the run's folder again as a whole, or begin anew in another"
        )
    return Tokens.load(out)


def _own_tokens(recipe: Recipe, start: ModelFolder) -> Tokens:
    """Return the start model's tokeniser. Raises RecipeError if the recipe names another one."""
    if recipe.data.vocabulary is not None:
        given = Tokens.from_vocabulary(Path(recipe.data.vocabulary), recipe.data.lowercase)
        if given.to_json() != start.tokens.to_json():
            raise RecipeError(
                f"{recipe.data.vocabulary} ({given.vocabulary.size} words) is not the tokeniser of {start.folder} "
                f"({start.tokens.vocabulary.size} words), whose ids its weights know; leave data.vocabulary out, or "
                "begin without --model"
            )
    return start.tokens


def _architecture(
    recipe: Recipe, spec: TaskSpec, store: Store, tokens: Tokens, schedule: Schedule, answers: Answers | None
) -> Architecture:
    config = SYSTEMS[recipe.system].resolved(
        **recipe.model.fitted(store.contract.whole).model_dump(),
        vocabulary=tokens.vocabulary,
        feature_size=store.contract.feature_size,
        classes=len(store.contract.class_names),
        whole_size=store.contract.whole_size,
        answers=len(answers.names) if answers is not None else 0,
    )
    _check_room(recipe, spec, config)
    _check_classes(recipe, store, schedule)
    # The word head is kept in every task, so that a fine-tuned model can still be trained on words.
    heads = {"word", *schedule.heads} | ({"answer"} if answers is not None and answers.task == OF_VQA else set())
    return Architecture(system=recipe.system, config=config, heads=tuple(sorted(heads)), diptych=version("diptych"))


def _check_classes(recipe: Recipe, store: Store, schedule: Schedule) -> None:
    """Raise RecipeError if the recipe classifies regions and the features have no classes."""
    if store.contract.class_names or "region_class" not in schedule.heads:
        return
    keys = {"region_classes": "0", "region_class": "0", "regions": "false"}
    off = next((f"objectives.{key}={off}" for key, off in keys.items() if hasattr(recipe.objectives, key)), None)
    raise RecipeError(
        f"{recipe.name} predicts the classes of hidden regions, and the features in {store.folder} have none; extract "
        "with `classes` in the features, or by a detector with classes"
        + (f", or leave that objective out: --set {off}" if off is not None else "")
    )


def _check_room(recipe: Recipe, spec: TaskSpec, config: ResolvedConfig) -> None:
    """Raise RecipeError if the model has too few positions for the longest texts of the recipe."""
    special = 3 if config.answer_slot and not spec.pretrains else spec.training.separators
    read = {"data.max_words": (recipe.data.max_words, special, config.max_beside)}
    if recipe.data.text is not None:
        read["data.text_words"] = (recipe.data.text_words, 1, config.max_text)
    for key, (words, more, places) in read.items():
        if places < words + more:
            budget = "" if places == config.max_text else " or set model.region_budget=paper"
            raise RecipeError(
                f"the model's shape leaves {places} positions for words, and {key}={words} needs {words + more}; raise "
                f"model.positions{budget} or lower {key}"
            )


def _check_text(recipe: Recipe, spec: TaskSpec) -> None:
    """Raise RecipeError if text without images is requested and there is none, or the model cannot read it."""
    can = sorted(name for name, system in SYSTEMS.items() if "alone" in getattr(system.model, "provides", ()))
    if recipe.data.text is None:
        if getattr(recipe.objectives, "text_alone", 0):
            raise RecipeError("objectives.text_alone needs texts: --set data.text=FILE, or text_alone=0")
    elif not spec.pretrains:
        raise RecipeError(f"data.text is for pre-training, not for {recipe.task}; leave it out")
    elif recipe.system not in can:
        raise RecipeError(f"{recipe.system} reads no text alone; leave out data.text, or use {' or '.join(can)}")
    elif pictured := recipe.objectives.of_pictures:
        raise RecipeError(
            f"{recipe.name} has tasks of pictures ({', '.join(pictured)}), which take turns with whole batches; "
            "train on data.text in a separate stage (xgpt/text), and start from its model with --model"
        )
