"""Data augmentation (XGPT, section 6.1): a model generates additional captions for a training set.

The new store is a copy of the old one with generated captions added to the chosen split. `Record.generated` lists them
with the model and the log-probability.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from diptych.core import GeneratedCaption, Record, collate
from diptych.core.folders import DETECTOR
from diptych.data.store.store import INDEX, Store, StoreWriter, splits_in
from diptych.metrics.tokenise import tokens_of
from diptych.models.decoding import DecodingOptions, Hypothesis, decode
from diptych.models.text import refuse_more_room
from diptych.models.weights import digest
from diptych.runs.folder import ModelFolder
from diptych.runs.predict import in_split
from diptych.runtime.claims import differences, refuse_other
from diptych.runtime.devices import predicting
from diptych.runtime.errors import DataError, RecipeError, counted
from diptych.runtime.files import saved_json, sweep, write_atomically
from diptych.runtime.outputs import claim, copy_folder
from diptych.runtime.progress import bar
from diptych.tasks.caption import CAPTION, Captioning
from diptych.training.ranks import seed_part
from diptych.vision.detectors.weights import DETECTOR as DESCRIBED

FILE = "augmented.json"  # file in the new store with the settings, and with the numbers of captions
BATCH = 50  # number of images per batch; another number would change the sampled captions
SHARD = 1000  # number of images per shard of the new store
SPARE = 2  # captions are generated this many times as often as needed, because some are duplicates


@dataclass
class Tally:
    """Counts of generated captions that were kept, and that were left out for each reason."""

    pictures: int = 0
    wanted: int = 0
    kept: int = 0
    said_before: int = 0  # captions left out because they equal a human caption of the image
    repeated: int = 0  # captions left out because they equal another generated caption of the image
    without_words: int = 0  # captions left out because they have no word, or [UNK], which would be read as text
    going_round: int = 0  # captions left out because they contain a sequence of three words twice
    without_regions: int = 0  # images that get no captions because they have no regions
    fewer: int = 0  # images that got fewer new captions than requested

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: count + getattr(other, name) for name, count in asdict(self).items()})

    def summary(self) -> str:
        blind = f"; {counted(self.without_regions, 'images')} without a region got no captions"
        return (
            f"{counted(self.kept, 'new captions')} for {counted(self.pictures, 'images')}; left out: "
            f"{self.said_before} equal to human captions, {self.repeated} repeated, {self.going_round} with a "
            f"repeated trigram, {self.without_words} without words or with [UNK]; {self.fewer} images got fewer than "
            "requested" + blind * bool(self.without_regions)
        )


@dataclass(frozen=True)
class Augmentation:
    """Settings of an augmentation, saved in the new store. It can only be resumed with the same settings."""

    store: str  # digest of the store
    by: str  # model that generated the captions: its system and a digest of its weights
    captions: float  # mean number of new captions per image that are requested
    split: str
    seed: int
    decoding: dict[str, Any] = field(default_factory=dict)


def augment(
    model: ModelFolder, store: Store, out: Path, captions: float, decoding: DecodingOptions, split: str, seed: int
) -> Tally:
    """Write the augmented store to `out`, or resume writing it. Raises DataError and RecipeError."""
    if out.resolve() == store.folder.resolve():
        raise RecipeError(f"{out} is the store itself; pass another folder for the new store")
    trained_for = model.recipe.task if model.recipe is not None else None
    if not CAPTION.offered_by(model.model, trained_for):
        raise RecipeError(f"{model.name} was trained for {trained_for}, not for captions; choose another model")
    model.accept(store.contract, store.folder)
    in_split(store, split, "--split")
    detector = store.detector()
    by = f"{model.architecture.system}/{digest(model.model)[:12]}"
    refuse_more_room(decoding.max_words, model.architecture.config)
    settings = Augmentation(store.content, by, captions, split, seed, decoding.model_dump(mode="json"))
    counts = _claim(out, settings)
    with StoreWriter(out, store.contract, SHARD) as written, bar("pictures") as progress:
        task = progress.add_task("writing", total=len(store))
        for number, start in enumerate(range(0, len(store), BATCH)):
            indices = range(start, min(start + BATCH, len(store)))
            # Each batch has its own seed and is written completely or not at all, so that resuming does not change
            # captions.
            if str(number) not in counts or any(store.words(index).key not in written.done for index in indices):
                seed_part(seed, number)
                tally = counts[str(number)] = Tally()
                for record in _with_captions(model, [store.record(i) for i in indices], settings, decoding, tally):
                    if record.key not in written.done:
                        written.add(record)
            if not (start + BATCH) % SHARD:
                _keep(out, settings, counts)
            progress.advance(task, len(indices))
    if detector is not None and not (out / DETECTOR / DESCRIBED).exists():
        copy_folder(detector, out / DETECTOR, "detector")
    _keep(out, settings, counts)
    return sum(counts.values(), start=Tally())


def _with_captions(
    model: ModelFolder, records: Sequence[Record], settings: Augmentation, decoding: DecodingOptions, tally: Tally
) -> Iterator[Record]:
    splits = splits_in(settings.split)
    chosen = [record for record in records if record.split in splits]
    shown = [record for record in chosen if record.regions is not None and len(record.regions)]
    texts = dict(
        zip((record.key for record in shown), generate_captions(model, shown, decoding) if shown else [], strict=True)
    )
    tally.without_regions += len(chosen) - len(shown)
    for record in records:
        yield _with_new(model, record, texts[record.key], settings, tally) if record.key in texts else record


def generate_captions(
    model: ModelFolder, records: Sequence[Record], decoding: DecodingOptions
) -> list[list[Hypothesis]]:
    most, task = model.architecture.config.max_regions, Captioning(model.tokens, decoding)
    seen = [record.best_regions(most) for record in records]
    writer: Any = model.model
    device = next(model.model.parameters()).device
    with predicting(writer, len(seen)):
        return decode(writer, collate([s for record in seen for s in task.queries(record)]).to(device), decoding)


def _with_new(
    model: ModelFolder, record: Record, texts: Sequence[Hypothesis], settings: Augmentation, tally: Tally
) -> Record:
    """Add new captions to a record. Captions that differ only in case or punctuation count as equal."""
    before = {tuple(tokens_of(caption)) for caption in record.captions}
    new: dict[tuple[str, ...], GeneratedCaption] = {}
    wanted = round(settings.captions * (tally.pictures + 1)) - tally.wanted  # so that their mean is as requested
    for text in texts:
        sentence = model.tokens.decode(text.tokens)
        words = tuple(tokens_of(sentence))
        if len(new) == wanted:
            break
        if model.tokens.vocabulary.unknown in text.tokens or not any(word.isalnum() for word in words):
            tally.without_words += 1
        elif words in before:
            tally.said_before += 1
        elif words in new:
            tally.repeated += 1
        elif _goes_round(words):
            tally.going_round += 1
        else:
            new[words] = GeneratedCaption(sentence, settings.by, round(text.score, 4))
    tally.pictures += 1
    tally.wanted += wanted
    tally.kept += len(new)
    tally.fewer += len(new) < wanted
    added = tuple(new.values())
    captions = (*record.captions, *(one.text for one in added))
    return replace(record, captions=captions, generated=(*record.generated, *added))


def _goes_round(words: Sequence[str]) -> bool:
    threes = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(threes)) < len(threes)


def _claim(out: Path, settings: Augmentation) -> dict[str, Tally]:
    """Write the settings to the folder `out`, or compare them with the settings that it already has.

    Return {batch: its counts} for the batches that are finished. Raises RecipeError for other settings.
    """
    claim(out, "store")
    if not (out / FILE).is_file():
        if (out / INDEX).exists():
            raise DataError(f"{out} holds a store that `augment` did not write; pass another folder")
        _keep(out, settings, {})
    sweep(out)
    known = saved_json(out / FILE, dict)
    refuse_other(out, "another augmentation", differences(asdict(settings), known.get("asked", {})))
    return {number: Tally(**counts) for number, counts in known.get("counts", {}).items()}


def _keep(out: Path, settings: Augmentation, counts: Mapping[str, Tally]) -> None:
    summary = {"asked": asdict(settings), "counts": {number: asdict(tally) for number, tally in counts.items()}}
    write_atomically(out / FILE, json.dumps(summary, indent=1).encode())
