"""Make batches from a store. A batch depends only on (seed, step), so the loader has no state to save."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from random import Random
from typing import Protocol, runtime_checkable

import numpy as np

from diptych.core import Batch, Partners, PickingUpdate, Record, Regions, Sample, Update, collate
from diptych.data.store.caching import PickledWithoutCaches
from diptych.data.store.corpus import Corpus
from diptych.data.store.mirror import is_foreign, mirrored
from diptych.data.store.order import POOL, Order
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError

ToSamples = Callable[[Record], list[Sample]]
CACHED = 200_000  # the samples of at most this many records are kept in memory


@runtime_checkable
class UpdateChoice(Protocol):
    """Chooses the update of each step, such as an objective (`objectives.Schedule`)."""

    def at(self, step: int) -> Update: ...


class Loader(PickledWithoutCaches):
    """The batches of a training run. Damaged records are left out; `corrupt` maps their keys to the reason.

    - records: indices into the store.
    - max_regions: the maximum number of regions that are read per record.
    - needs_regions: if True, records without regions are left out and listed in `without_regions`.
    - corpus, alone: a share `alone` of each batch is text from `corpus`, without images. If `alone` is 1, no record is
    read.
    - mirror: the share of samples whose image is flipped horizontally, with "left" and "right" swapped in the text.
      Samples of records with `is_foreign` texts are never flipped.
    - most_regions: a function from a sample's number of tokens to its maximum number of regions. The remaining regions
      are left out before masking.

    Raises DataError if no record has texts for the task.
    """

    def __init__(
        self,
        store: Store,
        records: Sequence[int],
        to_samples: ToSamples,
        updates: UpdateChoice,
        batch_size: int,
        seed: int,
        *,
        max_regions: int | None = None,
        needs_regions: bool = False,
        corpus: Corpus | None = None,
        alone: float = 0.5,
        pixels: Pixels | None = None,
        mirror: float = 0.0,
        most_regions: Callable[[int], int] | None = None,
    ) -> None:
        self.store, self.updates, self.seed, self.max_regions = store, updates, seed, max_regions
        self.corpus, self.pixels, self.corrupt = corpus, pixels, dict[str, str]()
        self.mirror, self.most_regions, self.background = mirror, most_regions, store.contract.background
        self.without_regions: list[str] = []  # keys of the records that are left out because they have no regions
        texts = min(max(round(alone * batch_size), 1), batch_size) if corpus is not None else 0
        self.text_order = Order(np.ones(len(corpus), dtype=np.int64), texts, seed) if corpus is not None else None
        self._to_samples = to_samples
        self._kept = CACHED if len(records) <= CACHED else POOL * batch_size  # records whose samples are kept in memory
        items, lengths = array("q"), array("q")  # lists of a million numbers would take 100 MB
        used = records if texts < batch_size else ()
        counts = store.region_counts(used) if max_regions is None else store.region_counts(used).clip(max=max_regions)
        for index, count in zip(used, counts.tolist(), strict=True):
            if needs_regions and not count:
                self.without_regions.append(store.words(index).key)
                continue
            for position, sample in enumerate(self._samples(index, False)):
                items.extend((index, position))
                lengths.append(len(sample) + count)
        self._items = np.frombuffer(items, np.int64).reshape(-1, 2)
        if not items and texts < batch_size:
            raise DataError(
                f"nothing to train on: none of {len(records)} chosen records (of {len(store)} in {store.folder}) has "
                f"texts for this task; `diptych check {store.folder}` shows the texts"
            )
        self.order = Order(np.frombuffer(lengths, np.int64), batch_size - texts, seed) if items else None

    @cached_property
    def _samples(self) -> Callable[[int, bool], tuple[Sample, ...]]:
        """A function from a record's index to its samples, without regions; with True, to those of the flipped image.

        A flipped sample is missing if its answer is out of vocabulary, or if `is_foreign(record)`. Each has the content
        hash of the image if it is known.
        """
        words, to_samples = self.store.words, self._to_samples

        def made(index: int, flip: bool) -> tuple[Sample, ...]:
            record = words(index)
            records = [record] if not flip else [] if is_foreign(record) else [mirrored(record)]
            samples = tuple(sample for one in records for sample in to_samples(one))
            if record.fingerprint is None:
                return samples
            return tuple(replace(sample, content=record.fingerprint[0]) for sample in samples)

        return lru_cache(maxsize=2 * self._kept)(made)

    def __len__(self) -> int:
        """Return the number of samples in an epoch: those with images, or those of the corpus if no record is read."""
        return len(self._items) or len(self.corpus or ())

    @property
    def steps_per_epoch(self) -> int:
        order = self.order or self.text_order
        assert order is not None
        return order.steps_per_epoch

    def at(self, step: int, part: int, parts: int) -> Batch:
        """Return the micro-batch `part` of `parts` of the global batch of `step`, prepared by the update of that step.

        Randomness depends on (seed, step, the sample's key), and negatives are drawn from the global batch. So the
        global batch does not depend on the number of parts. A part without a readable record gets a sample of another
        part, marked `idle`, which adds nothing to the loss. Raises DataError if no record of the batch can be read, or
        if there are more parts than samples.
        """
        whole = _GlobalBatch(self, step)
        own = range(part, len(whole), parts)
        if not own:
            raise DataError(
                f"step {step}: a batch of {len(whole)} samples cannot be divided into {parts} micro-batches; use fewer "
                "processes, or raise training.batch"
            )
        there = [number for number in own if whole.read(number) is not None]
        idle = not there
        if idle:
            there = [number for number in range(len(whole)) if whole.read(number) is not None][:1]
        if not there:
            key, why = next(iter(self.corrupt.items()))
            raise DataError(
                f"step {step}: none of the {len(whole)} records of the batch can be read ({len(self.corrupt)} damaged "
                f"records so far; the first, {key}: {why}); `diptych check {self.store.folder}` lists them"
            )
        update = self.updates.at(step)
        samples = [sample for number in there for sample in whole.prepared(number, update)]
        batch = replace(collate(samples), background=self.background)
        places = update.places(batch) if isinstance(update, PickingUpdate) else {}
        return replace(batch, idle=idle, places=places)

    def draw(self, step: int, key: str, what: str) -> Random:
        """Return the random generator of a sample at a step, for a purpose such as "masks"."""
        return Random(f"{self.seed}/{step}/{key}/{what}")

    def words(self, step: int, item: int) -> tuple[Sample, bool]:
        """Return the sample with index `item` without its regions, and True if it is flipped at this step."""
        index, position = self._items[item].tolist()
        sample = self._samples(index, False)[position]
        if self.mirror and self.draw(step, sample.key, "mirror").random() < self.mirror:
            flipped = {one.key: one for one in self._samples(index, True)}.get(sample.key)
            return (sample, False) if flipped is None else (flipped, True)
        return sample, False

    def regions(self, item: int) -> Regions | None:
        """Return the regions of the sample with index `item`, and its pixels if the model reads them.

        If the regions or pixels cannot be read, add the record to `corrupt` and return None.
        """
        index, position = self._items[item].tolist()
        try:
            regions = self.store.stored_regions(index)
            if self.pixels is not None and len(regions):
                regions = replace(regions, pixels=self.pixels.of(self.store.words(index)))
        except DataError as error:
            self.corrupt[error.key or self.store.words(index).key] = str(error)
            return None
        regions = regions if self.max_regions is None else regions.first(self.max_regions)
        if self.most_regions is not None:
            regions = regions.first(self.most_regions(len(self._samples(index, False)[position].text)))
        return regions


class _GlobalBatch:
    """The samples of a step.

    Samples with images come first, so that every part gets its share of images and of text. The texts of all samples
    are read, because this is fast. Regions are read when they are needed and at most once: for the samples of a part,
    and for the images of its negatives.
    """

    def __init__(self, loader: Loader, step: int) -> None:
        self.loader, self.step = loader, step
        self.items = [] if loader.order is None else loader.order.batch(step).tolist()
        self.lines = [] if loader.text_order is None else loader.text_order.batch(step).tolist()
        self.words = [loader.words(step, item) for item in self.items]
        self.read = lru_cache(maxsize=None)(self._read)
        self.partners = Partners([sample for sample, _ in self.words], self.read)

    def __len__(self) -> int:
        return len(self.items) + len(self.lines)

    def _read(self, number: int) -> Sample | None:
        """Return a sample with its regions, or a sample of the corpus; None if the regions cannot be read."""
        if number >= len(self.items):
            assert self.loader.corpus is not None
            return self.loader.corpus.sample(self.lines[number - len(self.items)])
        sample, flipped = self.words[number]
        regions = self.loader.regions(self.items[number])
        if regions is None:
            return None
        return replace(sample, regions=regions.mirrored() if flipped else regions)

    def prepared(self, number: int, update: Update) -> list[Sample]:
        """Return a sample after the step's update has prepared it, for example masked it. Some updates return several
        samples."""
        sample = self.read(number)
        assert sample is not None
        rng = self.loader.draw(self.step, sample.key, "masks")
        return update.prepare([replace(sample, seed=rng.getrandbits(63))], rng, self.partners)
