"""Captions as data (XGPT, section 6.1): new captions for a training set, written by a model.

The new store holds the records of the old one. To the captions of the chosen split those are added that the model wrote
and nobody had said; `Record.written` says which, by what model, and how likely it found each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from diptych.core import GeneratedCaption, Record, Writer, collate
from diptych.data.store.store import DETECTOR, INDEX, Store, StoreWriter, splits_in
from diptych.metrics.tokenise import tokens_of
from diptych.models.decoding import DecodingOptions, Hypothesis, decode
from diptych.models.weights import digest
from diptych.runs.folder import ModelFolder
from diptych.runs.prepare import in_split
from diptych.runtime.claims import differences, refuse_other
from diptych.runtime.devices import predicting
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.files import copy_folder, parse_json, sweep, text_of, write_atomically
from diptych.runtime.progress import bar
from diptych.tasks.caption import Captioning
from diptych.training.ranks import seed_part

FILE = "augmented.json"  # in the new store: what made it, and the counts
BATCH = 50  # pictures at a time; the captions depend on it, as words are drawn batch by batch
SHARD = 1000  # pictures
SPARE = 2  # times as many captions are written as are wanted: some will be repeats


@dataclass
class Tally:
    """What became of the captions that the model wrote."""

    pictures: int = 0
    wanted: int = 0
    kept: int = 0
    said_before: int = 0  # by people, of the same picture
    repeated: int = 0  # by the model, of the same picture
    without_words: int = 0
    going_round: int = 0  # captions that say three words in a row twice
    without_regions: int = 0  # pictures in which nothing was found, to which nothing was added
    fewer: int = 0  # pictures with fewer new captions than wanted

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: count + getattr(other, name) for name, count in asdict(self).items()})

    def summary(self) -> str:
        return (
            f"{self.kept} new captions for {self.pictures} pictures; left out: {self.said_before} said before, "
            f"{self.repeated} repeated, {self.going_round} that say three words twice, "
            f"{self.without_words} without words; {self.fewer} pictures got fewer than wanted"
            + (f"; {self.without_regions} pictures without a region got no captions" if self.without_regions else "")
        )


@dataclass(frozen=True)
class Augmentation:
    """What is asked for; kept in the new store, where the same again goes on and another is refused."""

    by: str  # system and digest of the weights
    captions: int  # a picture
    split: str
    seed: int
    decoding: dict[str, Any] = field(default_factory=dict)


def augment(
    model: ModelFolder, store: Store, out: Path, captions: int, decoding: DecodingOptions, split: str, seed: int
) -> Tally:
    """Writes the store `out`; the same call goes on where it was stopped. Raises DataError and RecipeError."""
    if out.resolve() == store.folder.resolve():
        raise RecipeError(f"{out} is the store itself; give another folder for the new one")
    writer: Any = model.model
    if not isinstance(writer, Writer):
        raise RecipeError(f"{model.architecture.system} cannot caption: it has no decoder; choose another model")
    model.accept(store.contract, store.folder)
    in_split(store, split, "--split")
    detector = store.detector()
    asked = Augmentation(_author(model), captions, split, seed, decoding.model_dump(mode="json"))
    counts = _claim(out, asked)
    with StoreWriter(out, store.contract, SHARD) as written, bar("pictures") as progress:
        task = progress.add_task("writing", total=len(store))
        for number, start in enumerate(range(0, len(store), BATCH)):
            indices = range(start, min(start + BATCH, len(store)))
            # Each batch is drawn from a seed of its own and written whole, so that a stop changes no caption.
            if str(number) not in counts or any(store.words(index).key not in written.done for index in indices):
                seed_part(seed, number)
                tally = counts[str(number)] = Tally()
                for record in _with_captions(model, [store.record(i) for i in indices], asked, decoding, tally):
                    if record.key not in written.done:
                        written.add(record)
            if not (start + BATCH) % SHARD:
                _keep(out, asked, counts)
            progress.advance(task, len(indices))
    if detector is not None:
        copy_folder(detector, out / DETECTOR)
    _keep(out, asked, counts)
    return sum(counts.values(), start=Tally())


def _with_captions(
    model: ModelFolder, records: Sequence[Record], asked: Augmentation, decoding: DecodingOptions, tally: Tally
) -> Iterator[Record]:
    splits = splits_in(asked.split)
    chosen = [record for record in records if record.split in splits]
    shown = [record for record in chosen if record.regions is not None and len(record.regions)]
    texts = dict(
        zip((record.key for record in shown), generate_captions(model, shown, decoding) if shown else [], strict=True)
    )
    tally.without_regions += len(chosen) - len(shown)
    for record in records:
        yield _with_new(model, record, texts[record.key], asked, tally) if record.key in texts else record


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
    model: ModelFolder, record: Record, texts: Sequence[Hypothesis], asked: Augmentation, tally: Tally
) -> Record:
    """Captions are the same where their words are, whatever their case and stops."""
    before = {tuple(tokens_of(caption)) for caption in record.captions}
    new: dict[tuple[str, ...], GeneratedCaption] = {}
    for text in texts:
        sentence = model.tokens.decode(text.tokens)
        words = tuple(tokens_of(sentence))
        if len(new) == asked.captions:
            break
        if not any(word.isalnum() for word in words):
            tally.without_words += 1
        elif words in before:
            tally.said_before += 1
        elif words in new:
            tally.repeated += 1
        elif _goes_round(words):
            tally.going_round += 1
        else:
            new[words] = GeneratedCaption(sentence, asked.by, round(text.score, 4))
    tally.pictures += 1
    tally.wanted += asked.captions
    tally.kept += len(new)
    tally.fewer += len(new) < asked.captions
    added = tuple(new.values())
    captions = (*record.captions, *(one.text for one in added))
    return replace(record, captions=captions, generated=(*record.generated, *added))


def _goes_round(words: Sequence[str]) -> bool:
    threes = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(threes)) < len(threes)


def _author(model: ModelFolder) -> str:
    return f"{model.architecture.system}/{digest(model.model)[:12]}"


def _claim(out: Path, asked: Augmentation) -> dict[str, Tally]:
    """Make the folder this augmentation's, or refuse it with the difference. The counts of batches that are done."""
    if not (out / FILE).is_file():
        if (out / INDEX).exists():
            raise DataError(f"{out} holds a store that was not made so; give another folder")
        out.mkdir(parents=True, exist_ok=True)
        _keep(out, asked, {})
    sweep(out)
    known = parse_json(text_of(out / FILE))
    refuse_other(out, "another augmentation", differences(asdict(asked), known["asked"]))
    return {number: Tally(**counts) for number, counts in known["counts"].items()}


def _keep(out: Path, asked: Augmentation, counts: Mapping[str, Tally]) -> None:
    summary = {"asked": asdict(asked), "counts": {number: asdict(tally) for number, tally in counts.items()}}
    write_atomically(out / FILE, json.dumps(summary, indent=1).encode())
