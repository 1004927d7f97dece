"""The training set-up of a run: task, objectives, records and model architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from diptych.core import Record, Sample, Task
from diptych.core.shares import FEWEST
from diptych.data.store.corpus import Corpus
from diptych.data.store.loader import Loader, ToSamples, UpdateChoice
from diptych.data.store.store import Store, iterate
from diptych.data.store.tokens import Tokens
from diptych.models import SystemModel
from diptych.objectives import Schedule
from diptych.runs.folder import Architecture
from diptych.runs.predict import in_split, pixel_reader, readable
from diptych.runtime.devices import choose_device, choose_precision, gains_by_bf16
from diptych.runtime.errors import DataError, RecipeError, counted
from diptych.systems import RECIPES, SYSTEMS
from diptych.systems.recipe import Recipe
from diptych.tasks import CAPTION, TaskSpec, find_task
from diptych.tasks.answers import OF_VQA, Answers
from diptych.tasks.rewards import FREQUENCIES, BatchCider, CorpusCider, human_captions
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.tasks.spec import SAMPLED, LeavesOut, TrainingRecords, sample_scope

SPECIAL_TOKENS = 3  # a text has at most this many special tokens
FAR_ABOVE = 5  # self-critical training warns if the learning rate is more than this many times the recipe's


@dataclass(frozen=True)
class Learner:
    """Supervised training on reference texts. The subclass `RewardedLearner` trains with rewards instead."""

    recipe: Recipe
    store: Store
    tokens: Tokens
    answers: Answers | None
    out: Path  # path of the run's folder
    spec: TaskSpec
    task: Task
    records: list[int]  # indices of the training records in the store
    held_out: list[int]  # indices of the validation records that have queries of the task; may be empty

    def check(self) -> Architecture:
        """Return the architecture of the model.

        Raises RecipeError or DataError if the recipe does not fit the data, or the model has too few positions for the
        texts.
        """
        recipe, spec = self.recipe, self.spec
        if not recipe.data.images and spec.scoring.baseline_regions:
            raise RecipeError(
                f"{recipe.name} chooses among regions, but data.images=false (--without-images) hides them; "
                "set data.images=true"
            )
        if recipe.training.epochs is not None:
            raise RecipeError(
                f"{recipe.name} sets training.epochs, which only finetune and pretrain convert to steps; set "
                "training.steps"
            )
        if recipe.data.text is None:
            if recipe.objectives.needs_text:
                raise RecipeError("objectives.text_alone needs texts; pass --set data.text=FILE, or set text_alone=0")
        elif not spec.pretrains:
            raise RecipeError(f"data.text is for pre-training, not for {recipe.task}; leave it out")
        elif recipe.system not in (can := sorted(n for n, one in SYSTEMS.items() if "alone" in one.model.provides)):
            raise RecipeError(
                f"{recipe.system} cannot read text without an image; leave out data.text, or use {' or '.join(can)}"
            )
        elif pictured := recipe.objectives.of_pictures:
            raise RecipeError(
                f"data.text has no images, but objectives of {recipe.name} need them ({', '.join(pictured)}). First "
                "train on data.text with another recipe, such as xgpt/text, then start from its model with --model"
            )
        return self.architecture

    @cached_property
    def schedule(self) -> Schedule:
        """The training objectives and their schedule. Raises DataError if the records have nothing to learn from."""
        return replace(self._schedule(), seed=self.recipe.training.seed)

    @cached_property
    def architecture(self) -> Architecture:
        """The model's config and heads.

        Raises RecipeError if the data lack what the recipe needs, or texts are too long.
        """
        recipe, spec, contract, answers = self.recipe, self.spec, self.store.contract, self.answers
        config = SYSTEMS[recipe.system].resolved(
            **recipe.model.fitted(contract.whole).model_dump(),
            vocabulary=self.tokens.vocabulary,
            feature_size=contract.feature_size,
            classes=len(contract.class_names),
            whole_size=contract.whole_size,
            answers=len(answers.names) if answers is not None else 0,
        )
        special = 3 if config.answer_slot and not spec.pretrains else spec.training.separators
        config.check_text("data.max_words", recipe.data.max_words, special)
        if recipe.data.text is not None:
            config.check_text("data.text_words", recipe.data.text_words, 1, alone=True)
        if "region_class" in self.schedule.heads and not contract.class_names:
            off = recipe.objectives.without_classes
            raise RecipeError(
                f"{recipe.name} predicts the classes of hidden regions, but the features in {self.store.folder} lack "
                "classes; extract with a detector that predicts classes, or pass features with `classes`"
                + (f", or leave that objective out: --set objectives.{off}" if off else "")
            )
        # Every model has the head "word", so that a fine-tuned model can later be trained to predict words.
        heads = {"word", *self.schedule.heads}
        heads |= {"answer"} if answers is not None and answers.task == OF_VQA else set()
        return Architecture(system=recipe.system, config=config, heads=tuple(sorted(heads)), diptych=version("diptych"))

    @cached_property
    def held_out_records(self) -> tuple[list[Record], tuple[str, ...]]:
        """The validation records with regions, and the keys of damaged records."""
        return readable(self.store, self.held_out, self.recipe.model.max_regions, self.with_pixels)

    @property
    def with_pixels(self) -> Callable[[Record], Record] | None:
        """A function that adds pixels to a record. None if the model reads no pixels."""
        return pixel_reader(self.recipe)

    def build(self) -> SystemModel:
        """Return a new model. The recipe's seed determines its random weights."""
        shape = self.architecture
        torch.manual_seed(self.recipe.training.seed)
        model = shape.build()
        self.schedule.check(model.provides, self.recipe.system, type(model))
        return model

    @property
    def samples(self) -> ToSamples:
        """A function from a record to its training samples. It is picklable, for loader processes."""
        return self.task.samples

    def _schedule(self) -> Schedule:
        return self.recipe.objectives.schedule(self.tokens.vocabulary)

    def notes(self) -> Iterator[str]:
        """Yield warnings that are shown before training starts."""
        if not self.held_out and self.recipe.training.validate_every is not None:
            yield (
                f"no records in split {self.recipe.data.validation!r}: nothing to validate on, so the last weights are "
                "kept; choose another split with the setting data.validation"
            )
        if 0 < len(self.held_out) < FEWEST and self.recipe.training.validate_every is not None:
            yield (
                f"warning: split {self.recipe.data.validation!r} has {counted(self.held_out, 'images')} to validate on"
                f", fewer than {FEWEST}: the scores that choose the best weights are unreliable"
            )
        device = choose_device(self.recipe.training.device)
        if choose_precision(self.recipe.training.precision, device) == "bf16" and not gains_by_bf16(device):
            yield "warning: on this processor bf16 takes several times as long as fp32; use training.precision=auto"
        objectives = [one.name for one in self.schedule.objectives]
        if self.spec.pretrains and self.held_out and len(objectives) > 1:
            yield (
                f"validation uses only the likelihood of {self.schedule.watched} to choose the best weights, because "
                f"the losses of {', '.join(objectives)} have no common unit"
            )
        most = self.recipe.model.max_regions
        yield from more_regions(self.store, self.records, most)
        if self.spec.training.notes is not None:
            yield from self.spec.training.notes(self.task, TrainingRecords(self.store, self.records, most))
        part, batch = self.recipe.training.micro_batch, self.recipe.training.batch
        if part is not None and (part == "auto" or part < batch) and self.schedule.compares_pairs:
            few = "as many as fit into memory" if part == "auto" else f"{part} per process"
            yield (
                f"each text is contrasted only with the images of its micro-batch: {few}, of {batch} in a step; "
                "training.micro_batch=null contrasts it with all, if they fit into memory"
            )
        yield from self._text_notes()

    def _text_notes(self) -> Iterator[str]:
        """Yield a warning about texts that are longer than data.max_words and are cut."""
        if not self.spec.training.cuts_texts:
            return
        texts = [text for index in self.records[:SAMPLED] for text in self.spec.texts(self.store.words(index))]
        most, lengths = self.recipe.data.max_words, [len(self.tokens.encode(text)) for text in texts]
        if over := [length for length in lengths if length > most]:
            longest = max(over)
            room = longest + SPECIAL_TOKENS <= self.recipe.model.max_beside
            yield (
                f"{len(over)} of {len(texts)} {self.spec.field}{sample_scope(len(self.records))} are longer than "
                f"{most} tokens and are cut; "
                + (f"data.max_words={longest} keeps them whole" if room else f"the longest has {longest}")
            )

    def batches(self) -> Loader:
        """Return the training batches. Raises DataError if there is nothing to train on."""
        training, data = self.recipe.training, self.recipe.data
        corpus = None
        if data.text is not None:
            corpus = Corpus(Path(data.text), self.tokens, data.text_words, data.text_joined)
        try:
            return self._loader(
                self.records, self.samples, self.schedule, training.batch, training.seed, mirror=data.mirror,
                needs_regions=self.recipe.model.needs_regions, corpus=corpus, alone=data.text_share,
            )  # fmt: skip
        except DataError as error:
            if lines := list(self._unknown()):
                raise DataError(f"{error}. {lines[0]}") from error
            raise

    def held_out_batches(self) -> Loader:
        """Return the validation batches, prepared by the schedule's first update.

        The batches are the same at each validation.
        """
        size = self.recipe.training.batch if self.recipe.model.reads_pixels else 64
        return self._loader(self.held_out, self.task.samples, self.schedule.first, size, 0)

    def _loader(
        self, records: list[int], samples: ToSamples, updates: UpdateChoice, batch: int, seed: int, **more: Any
    ) -> Loader:
        shape = self.recipe.model
        return Loader(
            self.store, records, samples, updates, batch, seed, max_regions=shape.max_regions,
            most_regions=shape.most_regions, pixels=self.recipe.pixels, **more,
        )  # fmt: skip

    def left_out(self, batches: Loader) -> Iterator[str]:
        """Yield warnings about records that `batches` leave out. Each has a count, an example and a remedy."""
        if empty := batches.without_regions:
            yield (
                f"{len(empty)} of {len(self.records)} images are left out: no region was found in them (the first: "
                f"{empty[0]}), and {self.recipe.system} reads only regions; extract with a lower score threshold"
            )
        yield from self._unknown()

    def _unknown(self) -> Iterator[str]:
        if isinstance(self.task, LeavesOut) and (unknown := self.task.unknown):
            key, caption = next(iter(unknown.items()))
            yield (
                f"left out: {counted(unknown, 'captions')}; the vocabulary has none of their words (the first: {key}, "
                f"{caption!r}); train a vocabulary on such captions (`diptych tokenizer train`), or translate them"
            )


@dataclass(frozen=True)
class RewardedLearner(Learner):
    """Self-critical training (SCST): the model's sampled captions are scored against human captions."""

    def check(self) -> Architecture:
        recipe = self.recipe
        if recipe.task != CAPTION.name:
            raise RecipeError(f"self-critical training rewards captions, not {recipe.task}; set task={CAPTION.name}")
        if recipe.training.distributed == "fsdp":
            raise RecipeError(
                "self-critical training generates captions within a step, which fsdp does not support; "
                "set training.distributed=ddp"
            )
        return super().check()

    @property
    def objectives(self) -> SelfCriticalObjectives:
        assert isinstance(self.recipe.objectives, SelfCriticalObjectives)
        return self.recipe.objectives

    def _schedule(self) -> Schedule:
        of_record = ((record.key, human_captions(record)) for record in map(self.store.words, self.records))
        references = {key: captions for key, captions in of_record if captions}
        if not references:
            raise DataError(
                f"none of the {len(self.records)} records of split {self.recipe.data.split!r} in {self.store.folder} "
                "has a human caption, which rewards need; choose another split with --set data.split=NAME"
            )
        corpus = CorpusCider(self.tokens, references, self.objectives.counts_end, self.out / FREQUENCIES)
        reward = corpus if self.objectives.references == "paper" else BatchCider(self.tokens)
        return self.objectives.rewarded(self.tokens.vocabulary, reward, self.recipe.decoding.max_words)

    @property
    def samples(self) -> ToSamples:
        """A function that makes a record's samples: one per image if references=paper, else one per human caption."""
        return partial(_of_people, self.task, 1 if self.objectives.references == "paper" else None)

    def _text_notes(self) -> Iterator[str]:
        """Yield warnings about images without human captions, and about a high learning rate."""
        bare = [record.key for record in map(self.store.words, self.records) if not human_captions(record)]
        if bare:
            yield (
                f"{len(bare)} of {len(self.records)} images without human captions are left out (the first: {bare[0]})"
            )
        preset, rate = RECIPES.get(self.recipe.name), self.recipe.optimizer.lr
        if preset is not None and rate > FAR_ABOVE * (usual := preset().optimizer.lr):
            yield (
                f"warning: learning rate {rate:g} is {rate / usual:.0f} times that of {self.recipe.name} ({usual:g}); "
                "at such rates self-critical training destroys what the model has learnt"
            )


def _of_people(task: Task, most: int | None, record: Record) -> list[Sample]:
    return task.samples(replace(record, captions=human_captions(record)))[:most]


def make_learner(recipe: Recipe, store: Store, tokens: Tokens, answers: Answers | None, out: Path) -> Learner:
    """Build the task, choose the training and validation records, and return the learner.

    Raises RecipeError, DataError or CheckpointError.
    """
    spec, data = find_task(recipe.task), recipe.data
    store.detector()  # raises CheckpointError if the detector is damaged
    task = recipe.task_with(tokens, answers, spec)
    held_out = [index for index in store.split(data.validation) if task.queries(store.words(index))]
    kind = RewardedLearner if isinstance(recipe.objectives, SelfCriticalObjectives) else Learner
    records = _choose(recipe, store)
    return kind(recipe, store, tokens, answers, out, spec, task, records, held_out[: data.validation_records])


def answers_of(recipe: Recipe, store: Store, kept: Answers | None) -> Answers | None:
    """Return `kept`, the start model's answers.

    If the task needs a list of answers and `kept` is of another task or None, collect new answers from the training
    records. The list of a classifier grows by the new labels of the training records.
    """
    spec, data = find_task(recipe.task), recipe.data
    if spec.training.answers is None or (kept is not None and kept.task == spec.name):
        more = spec.training.more_answers
        return kept if more is None or kept is None else more(iterate(store, data.split), kept)
    made = spec.training.answers(iterate(store, data.split), data.answers_at_least, data.answers_most)
    return replace(made, task=spec.name)


def _choose(recipe: Recipe, store: Store) -> list[int]:
    there = in_split(store, recipe.data.split, "--set data.split=NAME")
    if recipe.data.records is None or recipe.data.records >= len(there):
        return there
    return sorted(Random(f"{recipe.training.seed}/records").sample(there, recipe.data.records))


def more_regions(store: Store, records: Sequence[int], most: int) -> Iterator[str]:
    """Yield a warning if images have more than `most` regions, the number that the model reads."""
    counts = store.region_counts(records)
    over = np.flatnonzero(counts > most)
    if len(over):
        yield (
            f"{len(over)} of {len(records)} images have more than {most} regions: the best {most} are kept "
            f"(the first: {store.words(records[over[0]]).key}, {counts[over[0]]})"
        )
