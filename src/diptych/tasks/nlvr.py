"""Statements that are true or false of a picture (NLVR and the like)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.core import Batch, Record, Sample
from diptych.errors import DataError
from diptych.loading.tokens import Tokens
from diptych.tasks.vcr import finite


@dataclass(frozen=True)
class Nlvr:
    tokens: Tokens
    max_words: int = 24

    name = "nlvr"

    def samples(self, record: Record) -> list[Sample]:
        return self.queries(record)

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(
                key=statement.key,
                picture=record.key,
                regions=record.regions,
                text=torch.tensor([*self.tokens.encode(statement.text)[: self.max_words], self.tokens.vocabulary.sep]),
                truth={"true": statement.true},
            )
            for statement in record.statements
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Whether it is true, with the probability of what is said."""
        scores = model.heads["nlvr"](model(batch)).float()
        finite(scores, batch)
        probability, best = scores.softmax(-1).max(-1)
        told = zip(batch.keys, best.tolist(), probability.tolist(), strict=True)
        return [{"key": key, "true": bool(verdict), "score": score} for key, verdict, score in told]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Share of the statements that are judged rightly, times 100."""
        right, _ = statement_hits({told["key"]: told["true"] for told in predictions}, records)
        return {"accuracy": 100 * float(right.mean())}


def statement_hits(said: dict[str, bool], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
    """1 where a verdict is right, for each statement of the records, and its picture."""
    judged = [(record.key, statement) for record in records for statement in record.statements]
    if not judged:
        raise DataError("no record has statements to score; choose another split with --split")
    right = [float(said[statement.key] == statement.true) for _, statement in judged]
    return np.array(right), [picture for picture, _ in judged]
