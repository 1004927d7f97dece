"""Every system that writes, tiny and briefly trained, and the slow way to write that needs no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from diptych.core import TEXT_AFTER_REGIONS, Batch, Objective, Sample, collate
from diptych.models import SystemModel, Tden, TdenConfig
from diptych.objectives import GenerateText, MaskedLanguage, MaskedQueries, OneForward
from tests import toy


def tden(**changes: Any) -> Tden:
    torch.manual_seed(0)
    sizes = {"width": 32, "heads": 2, "ffn": 64, "positions": 24, "max_regions": 5, "feature_size": 6,
             "classes": toy.KINDS, "object_layers": 1, "sentence_layers": 1, "cross_layers": 1, "decoder_layers": 2,
             "dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.1}  # fmt: skip
    return Tden(TdenConfig(vocabulary=toy.VOCABULARY, **{**sizes, **changes}), ("word",))


# How each system is made, and by what objectives in turn it learns to write.
GENERATORS: dict[str, tuple[Callable[[], SystemModel], tuple[Objective, ...]]] = {
    "unified-vlp": (
        lambda: toy.model("word", std=0.05),
        (MaskedQueries(toy.VOCABULARY), MaskedLanguage(toy.VOCABULARY, rate=0.4)),
    ),
    "tden": (tden, (GenerateText(toy.VOCABULARY, reads="nothing"),)),
}


def trained(system: str, steps: int = 160) -> SystemModel:
    """Knows enough that what it writes differs from picture to picture, in length too."""
    make, objectives = GENERATORS[system]
    model, updates = make().train(), [OneForward((objective,)) for objective in objectives]
    optimizer, rng = torch.optim.AdamW(model.parameters(), lr=4e-3), Random(0)
    for step in range(steps):
        update = updates[step % len(updates)]
        batch = collate(update.prepare([toy.sample(step * 24 + n) for n in range(24)], rng))
        for losses in update.losses(model, batch):
            (name,) = losses
            (losses[name] / update.counts(batch)[name]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def teacher(system: str) -> Objective:
    """The objective that asks for a text the way decoding does, all words at once."""
    return GENERATORS[system][1][0]


class Uncached:
    """Reads regions and words anew at every step, each beam for itself."""

    def __init__(self, model: Any, system: str) -> None:
        self.model, self.system, self.vocabulary = model, system, model.vocabulary

    def begin(self, batch: Batch, room: int) -> tuple[Tensor, Any]:
        memory = (batch, [[[]] for _ in range(len(batch))])
        return self._ask(memory)[:, 0], memory

    def follow(self, memory: Any, words: Tensor, parents: Tensor) -> Tensor:
        _, written = memory
        for b, (said, of) in enumerate(zip(words.tolist(), parents.tolist(), strict=True)):
            written[b] = [[*written[b][parent], word] for word, parent in zip(said, of, strict=True)]
        return self._ask(memory)

    def _ask(self, memory: Any) -> Tensor:
        batch, written = memory
        asked = [self._sample(batch, row, words) for row, beams in enumerate(written) for words in beams]
        states = self.model(collate(asked))
        last = states.text[:, -1] if self.system == "unified-vlp" else states.target[:, -1]
        scores: Tensor = self.model.heads["word"](last).view(len(batch), -1, self.vocabulary.size)
        return scores

    def _sample(self, batch: Batch, row: int, words: Sequence[int]) -> Sample:
        """The words so far, and the place that asks for the next one."""
        count = int(batch.regions_present[row].sum())
        sample = toy.sample(int(batch.keys[row].removeprefix("toy/")), count)
        if self.system == "unified-vlp":
            return replace(sample, text=torch.tensor([*words, self.vocabulary.mask]), attention=TEXT_AFTER_REGIONS)
        (asked,) = GenerateText(self.vocabulary, reads="nothing").prepare([sample], Random(0))
        return replace(asked, target=torch.tensor([self.vocabulary.cls, *words]), target_labels=None)


COUNTS = (5, 1, 3, 2, 4, 1)  # regions of the pictures asked about


def ragged() -> Batch:
    return collate([toy.sample(10_000 + n, count) for n, count in enumerate(COUNTS)])
