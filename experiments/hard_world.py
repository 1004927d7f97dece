"""Drawn scenes made as hard as photographs, for the studies of captioners that learn from such.

No set of photographs with captions can be shipped. So captions have about 25 words (two of a scene's joined, none with
three words twice), and features and class probabilities have noise.
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
    """What a study learns from, as plain values, so that other processes can do parts of it."""

    store: str  # of drawn scenes, with splits train, val and test
    out: str
    pictures: int = 1500  # of the training split
    test: int = 200
    noise: float = 1.0  # in standard deviations of a feature, and of the logarithm of a class's probability
    seed: int = 0

    def made(self) -> Store:
        """The store of the study's folder, which is claimed for it; made where it is not there yet."""
        claim(self, self.out)
        folder = Path(self.out) / STORE
        if not (folder / INDEX).exists():
            make_hard(Store(Path(self.store)), folder, self.pictures, self.test, self.noise, self.seed)
        return Store(folder)


def make_hard(source: Store, out: Path, pictures: int, test: int, noise: float, seed: int) -> None:
    """Make a store of fewer pictures, with long captions and noisy regions; one shard, written whole or not at all.

    val keeps all its pictures. Raises DataError where `source` has no such splits.
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
    """The regions as a detector sees them that knows less of them: what they are is still likelier than not."""

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
    """Captions of the record joined by twos: at most `most` pairs, none that has three words twice."""
    pairs = [" and ".join(pair) for pair in permutations(dict.fromkeys(record.captions), 2)]
    kept = [text for text in pairs if not goes_round(text)]
    return tuple(Random(f"{seed}/{record.key}").sample(kept, min(most, len(kept))))


def goes_round(text: str) -> bool:
    """Whether three words in a row stand there twice."""
    grams = list(ngrams(tokens_of(text), 3))
    return len(grams) > len(set(grams))


def _features(regions: Regions) -> torch.Tensor:
    assert regions.features is not None
    return regions.features
