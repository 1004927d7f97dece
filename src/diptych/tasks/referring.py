"""Referring expressions: find the region that some words single out (RefCOCO+)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from diptych.core import Batch, Expression, Record, Regions, Sample
from diptych.errors import DataError
from diptych.loading.tokens import Tokens
from diptych.tasks.vcr import finite

FOUND = 0.5  # IoU with the true box from which on it counts as found
Box = Sequence[float]


@dataclass(frozen=True)
class Referring:
    """An expression, then the best of the picture's regions: detected ones, or the objects themselves (given boxes)."""

    tokens: Tokens
    max_words: int = 20

    name = "referring"

    def samples(self, record: Record) -> list[Sample]:
        return self.queries(record)

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(
                key=expression.key,
                picture=record.key,
                regions=record.regions,
                text=self._text(expression.text),
                truth={"box": expression.box},
            )
            for expression in record.expressions
        ]

    def _text(self, expression: str) -> Int[Tensor, "T"]:
        return torch.tensor([*self.tokens.encode(expression)[: self.max_words], self.tokens.vocabulary.sep])

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """The box of the best region, with its probability; no box where the picture has no region."""
        scores = model.heads["region_score"](model(batch).regions).float().reshape(batch.regions_present.shape)
        finite(scores.masked_fill(~batch.regions_present, 0), batch)
        if not scores.shape[1]:
            return [{"key": key, "region": None, "box": None, "score": 0.0} for key in batch.keys]
        best = scores.masked_fill(~batch.regions_present, -torch.inf).argmax(1)
        said = []
        for row, (key, region) in enumerate(zip(batch.keys, best.tolist(), strict=True)):
            there = bool(batch.regions_present[row, region])
            box = batch.boxes[row, region].tolist() if there else None
            score = float(scores[row, region].sigmoid()) if there else 0.0
            said.append({"key": key, "region": region if there else None, "box": box, "score": score})
        return said

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Share of the expressions whose box overlaps the true one by IoU 0.5 or more, times 100."""
        right, _ = box_hits({told["key"]: told["box"] for told in predictions}, records)
        return {"accuracy": 100 * float(right.mean())}


def box_hits(said: dict[str, Box | None], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
    """1 where a box is right, for each expression of the records, and its picture."""
    right, pictures = [], []
    for record, expression in expressions_of(records):
        box = said[expression.key]
        right.append(float(box is not None and iou(box, expression.box) >= FOUND))
        pictures.append(record.key)
    if not right:
        raise DataError("no record has expressions to score; choose another split with --split")
    return np.array(right), pictures


def expressions_of(records: Sequence[Record]) -> Iterator[tuple[Record, Expression]]:
    return ((record, expression) for record in records for expression in record.expressions)


def can_be_found(expression: Expression, regions: Regions | None) -> bool:
    """Whether any region would count as right."""
    return regions is not None and bool((regions.overlaps(expression.box) >= FOUND).any())


def iou(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - shared
    return shared / both if both > 0 else 0.0
