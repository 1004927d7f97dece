"""Image captioning: write a sentence about a picture. Also the samples that pre-training reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from diptych.core import Batch, Record, Sample
from diptych.decoding import DecodingOptions, decode
from diptych.errors import DataError
from diptych.loading.tokens import Tokens
from diptych.metrics.captions import caption_scores


@dataclass(frozen=True)
class Captioning:
    """One training sample a caption; one question a picture."""

    tokens: Tokens
    decoding: DecodingOptions
    max_words: int = 20  # longer captions are cut, as the papers do
    # Captions that were left out, by key: the vocabulary knows none of their words, so they teach to write [UNK].
    unknown: dict[str, str] = field(default_factory=dict, compare=False)

    name = "caption"

    def samples(self, record: Record) -> list[Sample]:
        return [
            sample
            for position, caption in enumerate(record.captions)
            for sample in self._sample(record, position, caption)
        ]

    def _sample(self, record: Record, position: int, caption: str) -> list[Sample]:
        words = self.tokens.encode(caption)[: self.max_words]
        if not words:  # empty captions are reported by `diptych check`
            return []
        if not self.tokens.knows(words):
            self.unknown[f"{record.key}#{position}"] = caption
            return []
        text = torch.tensor([*words, self.tokens.vocabulary.sep])
        return [Sample(key=f"{record.key}#{position}", picture=record.key, regions=None, text=text)]

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(key=record.key, picture=record.key, regions=record.regions, text=torch.zeros(0, dtype=torch.long))
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        best = [hypotheses[0] for hypotheses in decode(model, batch, self.decoding)]
        return [
            {"key": key, "caption": self.tokens.decode(written.tokens), "score": written.score}
            for key, written in zip(batch.keys, best, strict=True)
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """BLEU-1..4, ROUGE-L and CIDEr, all times 100, over the records that have captions."""
        references = {record.key: record.captions for record in records if record.captions}
        if not references:
            raise DataError("no record has captions to score against; choose another split with --split")
        written = {p["key"]: p["caption"] for p in predictions}
        scores = caption_scores({key: written[key] for key in references}, references)
        return {name: 100 * score for name, score in scores.items()}
