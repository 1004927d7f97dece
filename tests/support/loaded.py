"""Samples of captions, and a schedule of one update."""

from random import Random

import torch

from diptych.core import Partners, Record, Sample, Update


class Noisy:
    """An update that only adds a random word to each sample."""

    objectives = ()
    needs: frozenset[str] = frozenset()
    weights: dict[str, float] = {}  # noqa: RUF012

    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]:
        return [
            Sample(s.key, s.picture, s.regions, torch.cat([s.text, torch.tensor([rng.randrange(9)])])) for s in samples
        ]

    def counts(self, batch: object) -> dict[str, torch.Tensor]:
        return {}

    def losses(self, model: object, batch: object) -> object:
        raise NotImplementedError


class Always:
    def at(self, step: int) -> Update:
        return Noisy()  # type: ignore[return-value]


def captions(one: Record) -> list[Sample]:
    return [
        Sample(f"{one.key}#{n}", one.key, one.regions, torch.tensor([len(word) for word in caption.split()]))
        for n, caption in enumerate(one.captions)
    ]
