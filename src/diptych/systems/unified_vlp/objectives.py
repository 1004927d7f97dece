"""Unified VLP's objectives: masked words with a seq2seq or bidirectional mask, and region classes as a pretext."""

from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt

from diptych.core import BIDIRECTIONAL, TEXT_AFTER_REGIONS, Attention, Objective, Vocabulary
from diptych.core.shares import PartialShare, Share
from diptych.objectives import MaskedLanguage, MaskedQueries, MaskedRegionClass, OneForward, Schedule
from diptych.objectives.settings import Objectives


class UnifiedVLPObjectives(Objectives):
    """Settings of the objectives for words (masked, or predicted at queries) and for the classes of hidden regions."""

    without_classes = "region_class=0"
    kind: Literal["unified-vlp"] = "unified-vlp"
    """Kind of objectives."""
    words: Literal["masked", "queries"] | None = "masked"
    """masked: masked words are predicted; queries: every word is predicted by a query; null: no words are predicted."""
    seq2seq: Share = 0.75
    """Share of samples in which words attend only to earlier words (the paper's lambda). In others, to all words."""
    rate: Share = 0.15
    """Share of the words that are hidden."""
    most: PositiveInt | None = None
    """Maximum number of hidden words (the code: 3); null: no limit."""
    drop_worst: PartialShare = 0.0
    """Share of the samples that is left out of the loss: the samples with the highest losses."""
    label_smoothing: PartialShare = 0.0
    """Label smoothing of the words."""
    region_class: NonNegativeFloat = 0.0
    """Weight of region classes as pretext (Table 6); 0: off."""
    region_rate: Share = 0.15
    """Share of the regions that are hidden."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Return the schedule.

        It has one update. With words=queries it has two, for queries and for masked words. Each step then draws one of
        them, with the probabilities seq2seq and 1 - seq2seq.
        """
        both, read = (TEXT_AFTER_REGIONS, self.seq2seq), (BIDIRECTIONAL, 1 - self.seq2seq)
        drawn: list[tuple[Objective | None, float]] = [(None, 1.0)]
        if self.words == "masked":
            drawn = [(self._masked(vocabulary, both, read), 1.0)]
        elif self.words == "queries":
            queries = MaskedQueries(vocabulary, label_smoothing=self.label_smoothing)
            drawn = [(queries, self.seq2seq), (self._masked(vocabulary, read), 1 - self.seq2seq)]
        updates = [(self._update(words, vocabulary), share) for words, share in drawn if share]
        return Schedule(tuple(updates), order="sampled" if len(updates) > 1 else "together")

    def _masked(self, vocabulary: Vocabulary, *attention: tuple[Attention, float]) -> MaskedLanguage:
        used, smoothing = tuple(pair for pair in attention if pair[1]), self.label_smoothing
        return MaskedLanguage(
            vocabulary,
            rate=self.rate,
            most=self.most,
            attention=used,
            drop_worst=self.drop_worst,
            label_smoothing=smoothing,
        )

    def _update(self, words: Objective | None, vocabulary: Vocabulary) -> OneForward:
        objectives = [words] if words is not None else []
        if self.region_class:
            objectives.append(MaskedRegionClass(rate=self.region_rate))
        return OneForward(tuple(objectives), {"masked_region_class": self.region_class} if self.region_class else {})
