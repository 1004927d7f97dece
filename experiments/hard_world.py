"""Make drawn scenes as hard to caption as photographs, for studies of captioning.

The repository cannot contain photographs with captions. So two captions of a scene are joined into one of about 25
words, without a repeated trigram. Noise is added to the features and class probabilities of regions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from random import Random

import torch

from diptych.core import Record, Regions
from diptych.data.store.store import INDEX, Store, StoreWriter
from diptych.metrics.tokenise import ngrams, tokens_of
from diptych.runs.predict import in_split
from experiments.claiming import claim

STORE = "store"


@dataclass(frozen=True)
class HardWorld:
    """The data of a study, as plain values that can be sent to other processes."""

    store: str  # folder of a store of drawn scenes with splits train, val and test
    out: str
    pictures: int = 1500  # number of training images
    test: int = 200
    noise: float = 1.0  # of features, relative to their standard deviation; of classes, in log-probabilities
    seed: int = 0

    def made(self) -> Store:
        """Return the store in the study's folder. The first call makes it, and reserves the folder for the study."""
        claim(self, self.out)
        folder = Path(self.out) / STORE
        if not (folder / INDEX).exists():
            make_hard(Store(Path(self.store)), folder, self.pictures, self.test, self.noise, self.seed)
        return Store(folder)


def make_hard(source: Store, out: Path, pictures: int, test: int, noise: float, seed: int) -> None:
    """Write a store with fewer images, long captions and noisy regions. It has a single shard, so it is written
    completely or not at all.

    The split val keeps all its images. Raises DataError if `source` lacks one of the splits train and test.
    """
    train = Random(f"{seed}/pictures").sample(in_split(source, "train", "--data"), pictures)
    chosen = [*sorted(train), *source.split("val"), *in_split(source, "test", "--data")[:test]]
    deviation = torch.cat([_features(source.regions(index)) for index in train[:500]]).std(0)
    contract = replace(source.contract, extractor=f"{source.contract.extractor}, noise {noise}", weights="")
    with StoreWriter(out, contract, len(chosen)) as writer:
        for index in chosen:
            record, drawn = source.record(index), torch.Generator().manual_seed(index)
            if record.regions is None or not len(record.regions) or not (long := long_captions(record, seed)):
                continue
            regions = with_noise(record.regions, noise, deviation, drawn)
            bare = Record(record.key, record.split, size=record.size, objects=record.objects)
            writer.add(replace(bare, captions=long, regions=regions))


def with_noise(regions: Regions, noise: float, deviation: torch.Tensor, drawn: torch.Generator) -> Regions:
    """Return the regions with Gaussian noise on their features and class probabilities, as from a weaker detector."""

    def noisy(value: torch.Tensor, deviation: torch.Tensor | float = 1.0) -> torch.Tensor:
        return value + noise * deviation * torch.randn(value.shape, generator=drawn)

    whole, classes = regions.whole, regions.classes
    return replace(
        regions,
        features=noisy(_features(regions), deviation),
        whole=None if whole is None else noisy(whole, deviation),
        classes=None if classes is None else noisy(classes.clamp_min(1e-3).log()).softmax(-1),
    )


def long_captions(record: Record, seed: int, most: int = 5) -> tuple[str, ...]:
    """Join the record's captions in pairs. Return at most `most` of the pairs that have no repeated trigram."""
    pairs = [" and ".join(pair) for pair in permutations(dict.fromkeys(record.captions), 2)]
    kept = [text for text in pairs if not goes_round(text)]
    return tuple(Random(f"{seed}/{record.key}").sample(kept, min(most, len(kept))))


def goes_round(text: str) -> bool:
    """Return whether the text has a repeated trigram (three words in a row that occur twice)."""
    grams = list(ngrams(tokens_of(text), 3))
    return len(grams) > len(set(grams))


def _features(regions: Regions) -> torch.Tensor:
    assert regions.features is not None
    return regions.features
