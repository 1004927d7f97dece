"""Masked language modelling (MLM), including both objectives of Unified VLP."""

from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import IGNORE, Batch, Capability, Sample, StateModel, StateRequest, States, Vocabulary
from diptych.core.attention import BIDIRECTIONAL, TEXT_AFTER_REGIONS, Attention
from diptych.objectives.per_sample import PerSample
from diptych.objectives.words import Scheme, hide_words, mean_by_sample, whole_words, with_least, word_losses


@dataclass(frozen=True)
class MaskedLanguage(PerSample):
    """Masked words: the model predicts words that were hidden in a text.

    Masked language modelling. By default, each sample randomly gets one of Unified VLP's two attention tables.

    The number of masked tokens is min(most, max(at_least, round(rate * words))); [SEP] does not count as a word. The
    final [SEP] may be masked too, so that the model learns where captions end.
    """

    vocabulary: Vocabulary
    rate: float = 0.15
    most: int | None = None  # a text has at most this many masked tokens (3 with --max_pred of Unified VLP's code)
    at_least: int = 1
    scheme: Scheme = (0.8, 0.1, 0.1)
    attention: tuple[tuple[Attention, float], ...] = ((TEXT_AFTER_REGIONS, 0.75), (BIDIRECTIONAL, 0.25))
    # True: mismatched pairs have no targets (ImageBERT, section 4.3). Their words are masked all the same, because
    # otherwise a [MASK] would reveal that a pair matches.
    only_matched: bool = False
    drop_worst: float = 0.0  # this share of a micro-batch's samples, with the largest losses, is left out
    label_smoothing: float = 0.0
    hides_end: bool = True  # True: the final [SEP] may be masked
    by_chance: bool = False  # True: mask each token with probability `rate`, but at least `at_least` in all
    whole_words: bool = False  # True: mask words with all their pieces, and no special token (VL-BERT's code)
    by_sample: bool = False  # True: average each sample's mean loss (VL-BERT's NORM_IN_BATCH_FIRST)
    alone: bool = False  # True: the image is removed, for pre-training on text
    # Texts to train on: all, only those with an image (pictured), or only those without one (alone).
    of: Literal["all", "pictured", "alone"] = "all"
    name: str = "masked_language"

    heads: ClassVar = frozenset({"word"})
    changes: ClassVar = "input"

    @property
    def needs(self) -> frozenset[Capability]:
        alone = self.alone or self.of == "alone"
        written = any(table.text[1] == "past" and weight for table, weight in self.attention)
        return frozenset({"text", *({"alone"} if alone else ()), *({"text after regions"} if written else ())})

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        own = [self.of == "all" or (s.regions is None) == (self.of == "alone") for s in samples]
        made = [self.prepare_one(s, rng) if its else s for s, its in zip(samples, own, strict=True)]
        labels = (one.text_labels for one in made if one.text_labels is not None)
        if self.by_chance and len(samples) > 1 and not any(bool((one != IGNORE).any()) for one in labels):
            able = (at for at, s in enumerate(samples) if own[at] and (s.matched or not self.only_matched))
            for at in islice(able, 1):  # a process without a target would let the others wait
                made[at] = replace(self, at_least=1).prepare_one(samples[at], rng)
        return made

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        if self.alone:
            sample = replace(sample, regions=None)
        tables, weights = zip(*self.attention, strict=True)
        (attention,) = rng.choices(tables, weights)
        words = self._choose(sample.text, rng)
        chosen = [place for word in words for place in word]
        labels = torch.full_like(sample.text, IGNORE)
        if sample.matched or not self.only_matched:
            labels[chosen] = sample.text[chosen]
        hidden = hide_words(sample.text, words, self.vocabulary, self.scheme, rng)
        return replace(sample, attention=attention, text=hidden, text_labels=labels)

    def _choose(self, text: Tensor, rng: Random) -> list[list[int]]:
        """Choose the tokens to mask. Return groups of positions: one per word if `whole_words`, else one per token."""
        ends = len(text) > 0 and int(text[-1]) == self.vocabulary.sep  # a text of a corpus does not end with [SEP]
        words = [[place] for place in range(len(text) - (ends and not self.hides_end))]
        words = whole_words(text, self.vocabulary) if self.whole_words else words
        if self.by_chance:
            drawn = torch.tensor([rng.random() < self.rate for _ in words], dtype=torch.bool)
            return [words[number] for number in with_least(drawn, self.at_least, rng).nonzero()[:, 0].tolist()]
        length = len(words) + 1 if self.whole_words else len(text)
        return rng.sample(words, min(self.how_many(length), len(words)))

    def how_many(self, length: int) -> int:
        """Return the number of tokens to mask in a text of `length` tokens, including the final [SEP]."""
        wanted = max(self.at_least, round(self.rate * (length - 1)))
        return min(wanted, length if self.most is None else self.most, length)

    def count(self, batch: Batch) -> Tensor:
        """Return the number of targets, or of samples with targets if `by_sample`."""
        chosen = self.request(batch).mask
        return chosen.any(1).sum() if self.by_sample else chosen.sum()

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(text=self._labels(batch) != IGNORE)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        labels = self._labels(batch)
        places = batch.where(self.name, self.request)
        losses = word_losses(model, states.text, labels, self.label_smoothing, self.vocabulary.pad, places)
        if self.by_sample:
            return mean_by_sample(losses, labels != IGNORE)
        return self._without_worst(losses, batch) if self.drop_worst else losses.sum()

    def _labels(self, batch: Batch) -> Int[Tensor, "B T"]:
        """Return the labels. They are IGNORE for texts on which this objective does not train (see the field `of`)."""
        if self.of == "all":
            return batch.text_labels
        alone = ~batch.regions_present.any(1)
        own = alone if self.of == "alone" else ~alone
        return batch.text_labels.masked_fill(~own[:, None], IGNORE)

    def _without_worst(self, losses: Tensor, batch: Batch) -> Tensor:
        """Return the scaled sum of the losses of the kept samples (drop_worst_ratio of Unified VLP's code).

        Divided by `count`, the result is the mean loss of the kept samples. The scaling is needed because `count` is
        computed before the forward pass, for all samples.
        """
        chosen = self._labels(batch) != IGNORE
        per_sample = losses.new_zeros(chosen.shape).masked_scatter(chosen, losses).sum(1)
        kept, which = per_sample.topk(max(1, int(len(batch) * (1 - self.drop_worst))), largest=False)
        of_kept = chosen.sum(1)[which].sum()
        return kept.sum() * (chosen.sum() / of_kept.clamp(min=1))
