"""Which proposals become regions, as the official extractors choose, and in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.vision.detectors.official.boxes import DETECTRON2, BoxConvention

LOWEST = 1e-6  # a probability that is not worth another try


@dataclass(frozen=True)
class ChosenBoxes:
    """`rows` of the proposals, in order; the others have a number for each of all proposals."""

    rows: Int[Tensor, "R"]
    classes: Int[Tensor, "N"]  # 0 is the background
    scores: Float[Tensor, "N"]


@dataclass(frozen=True)
class ByClass:
    """Of each class, boxes that a likelier one covers are dropped; a proposal's confidence is its best of the classes
    in which it was not. Those that are confident stay, as the proposals lie; where fewer than `least` or more than
    `most` are, the most confident ones do, best first.
    """

    least: int
    most: int
    confidence: float
    strict: bool  # over `confidence`, not as much
    overlap: float
    convention: BoxConvention

    def choose(self, boxes: Float[Tensor, "N *C 4"], probabilities: Float[Tensor, "N C"]) -> ChosenBoxes:
        """`boxes`: one for all classes, or one for each. Class 0 is the background.

        A box is dropped by likelier ones alone, so what is likelier than some floor can be chosen without the rest; the
        floor is lowered until enough is. The result is that of all classes.
        """
        boxes, probabilities = boxes.cpu(), probabilities.cpu()
        floor = self.confidence
        while True:
            scores, classes = self._best(boxes, probabilities, floor)
            if floor == 0 or int((scores >= floor).sum()) >= min(self.least, len(boxes)):
                return ChosenBoxes(self._keep(scores), classes, scores)
            floor = floor / 8 if floor > LOWEST else 0.0

    def _best(
        self, boxes: Float[Tensor, "N *C 4"], probabilities: Float[Tensor, "N C"], floor: float
    ) -> tuple[Float[Tensor, "N"], Int[Tensor, "N"]]:
        scores, best = torch.zeros(len(boxes)), torch.zeros(len(boxes), dtype=torch.long)
        for kind, rows in _by_class(probabilities, floor):
            of_class = boxes[rows] if boxes.ndim == 2 else boxes[rows, kind]
            left = rows[self.convention.nms(of_class, probabilities[rows, kind], self.overlap)]
            better = left[probabilities[left, kind] > scores[left]]
            scores[better], best[better] = probabilities[better, kind], kind
        return scores, best

    def _keep(self, scores: Float[Tensor, "N"]) -> Int[Tensor, "R"]:
        confident = (scores > self.confidence if self.strict else scores >= self.confidence).nonzero()[:, 0]
        if self.least <= len(confident) <= self.most:
            return confident
        ranked = scores.argsort(descending=True, stable=True)
        return ranked[: self.least if len(confident) < self.least else self.most]


def _by_class(probabilities: Float[Tensor, "N C"], floor: float) -> Iterator[tuple[int, Int[Tensor, "K"]]]:
    """For each class with any, in their order: the rows whose probability is at least the floor."""
    kinds, rows = (probabilities[:, 1:] >= floor).T.nonzero(as_tuple=True)
    counts = kinds.bincount().tolist()
    for kind, of_class in enumerate(torch.split(rows, counts), 1):
        if len(of_class):
            yield kind, of_class


@dataclass(frozen=True)
class BestOfAll:
    """One NMS over each proposal's best class and its box there; the best `most`. The overlaps are tried in turn until
    `least` stay (the reference's `maxnms`)."""

    least: int
    most: int
    overlaps: Sequence[float]

    def choose(self, boxes: Float[Tensor, "N C 4"], probabilities: Float[Tensor, "N C"]) -> ChosenBoxes:
        boxes, probabilities = boxes.cpu(), probabilities.cpu()
        scores, best = probabilities[:, 1:].max(1)
        own = boxes[torch.arange(len(boxes)), best + 1]
        rows = torch.zeros(0, dtype=torch.long)
        for overlap in self.overlaps:
            rows = DETECTRON2.nms(own, scores, overlap)[: self.most]
            if len(rows) >= self.least:
                break
        return ChosenBoxes(rows, best + 1, scores)
