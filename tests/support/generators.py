"""Every system that writes, tiny and briefly trained; and the slow way to write, which needs no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from diptych.core import TARGET_AFTER_BOTH, TEXT_AFTER_REGIONS, Batch, Objective, Sample, collate
from diptych.models import SystemModel
from diptych.models.decoding import DecodingOptions, Frames, decode, search
from diptych.objectives import GenerateText, MaskedQueries, OneForward
from tests.support import toy

# How each is made, and the objective that asks for all words of a caption at once, as decoding asks for them.
GENERATORS: dict[str, tuple[Callable[[], SystemModel], Objective]] = {
    "unified-vlp": (lambda: toy.model("word", std=0.05), MaskedQueries(toy.VOCABULARY)),
    "tden": (lambda: toy.tden("word", std=0.1), GenerateText(toy.VOCABULARY, reads="nothing")),
    "xgpt": (lambda: toy.xgpt("word", std=0.1), GenerateText(toy.VOCABULARY, reads="nothing")),
}
M = TypeVar("M", bound=SystemModel)
COUNTS = (5, 1, 3, 2, 4, 1)  # regions of the pictures asked about


def trained(system: str, steps: int = 70) -> SystemModel:
    """Knows enough that what it writes differs from picture to picture, in length too."""
    make, objective = GENERATORS[system]
    return taught(make(), objective, steps=steps, rate=6e-3)


def taught(model: M, *objectives: Objective, steps: int, rate: float = 4e-3) -> M:
    """Train a model with each objective in turn."""
    updates, rng = [OneForward((objective,)) for objective in objectives], Random(0)
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=rate, fused=True)
    for step in range(steps):
        update = updates[step % len(updates)]
        batch = collate(update.prepare([toy.sample(step * 24 + n) for n in range(24)], rng))
        for losses in update.losses(model, batch):
            (name,) = losses
            (losses[name] / update.counts(batch)[name]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def ragged() -> Batch:
    return collate([toy.sample(10_000 + n, count) for n, count in enumerate(COUNTS)])


def check_names_its_regions(model: Any, least: int = 4, options: DecodingOptions | None = None) -> None:
    batch = ragged()
    found = decode(model, batch, options or DecodingOptions(max_words=8))
    wanted = [row[: row.index(toy.VOCABULARY.sep)] for row in batch.text.tolist()]
    assert sum(f[0].tokens == w for f, w in zip(found, wanted, strict=True)) >= least
    assert len({len(f[0].tokens) for f in found}) > 2, "lengths should be ragged"


def check_cached_equals_uncached(model: Any, system: str, options: DecodingOptions) -> tuple[Frames, Frames]:
    """Return the histories of both searches.

    What follows [SEP] of a finished beam is nobody's text; close ties may fall either way there.
    """
    batch, slow = ragged(), Uncached(model, system)
    ours, theirs = search(model, batch, options), search(slow, batch, options)
    assert len(ours) == len(theirs)
    for n in range(len(ours)):
        alive = theirs.scores[n] > -1000
        assert torch.equal(ours.words[n][alive], theirs.words[n][alive])
        assert torch.equal(ours.parents[n][alive], theirs.parents[n][alive])
        torch.testing.assert_close(ours.scores[n][alive], theirs.scores[n][alive], atol=1e-4, rtol=1e-5)
    for mine, other in zip(decode(model, batch, options), decode(slow, batch, options), strict=True):
        assert mine[0].tokens == other[0].tokens
        assert mine[0].score == pytest.approx(other[0].score, abs=1e-4)
    return ours, theirs


def check_company_changes_nothing(model: Any) -> None:
    options = DecodingOptions(beams=3, max_words=9)
    for row, together in enumerate(decode(model, ragged(), options)):
        (alone,) = decode(model, collate([toy.sample(10_000 + row, COUNTS[row])]), options)
        assert alone[0].tokens == together[0].tokens
        assert alone[0].score == pytest.approx(together[0].score, abs=1e-4)


def check_half_precision(model: Any) -> None:
    options = DecodingOptions(beams=3, max_words=9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = decode(model, ragged(), options)
    for ours, wanted in zip(half, decode(model, ragged(), options), strict=True):
        assert ours[0].score == pytest.approx(wanted[0].score, abs=0.3)


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
        nothing, target = torch.zeros(0, dtype=torch.long), torch.tensor([self.vocabulary.cls, *words])
        return replace(sample, text=nothing, target=target, attention=TARGET_AFTER_BOTH)
