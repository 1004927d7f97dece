"""The rules by which the official extractors select and order regions among proposals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.vision.detectors.official.boxes import DETECTRON2, BoxConvention

LOWEST = 1e-6  # below this floor all classes are searched


@dataclass(frozen=True)
class ChosenBoxes:
    """`rows` are the chosen proposals, in order; `classes` and `scores` belong to all proposals."""

    rows: Int[Tensor, "R"]
    classes: Int[Tensor, "N"]  # 0 is the background
    scores: Float[Tensor, "N"]


@dataclass(frozen=True)
class ByClass:
    """NMS within each class, then a threshold on each proposal's best remaining class probability, its confidence.

    The confident proposals stay in their order. If they are fewer than `least`, or more than `most`, the
    `least` (or `most`) most confident ones are taken instead, best first.
    """

    least: int
    most: int
    confidence: float
    strict: bool  # confident means over `confidence`, not equal to it
    overlap: float
    convention: BoxConvention

    def choose(self, boxes: Float[Tensor, "N *C 4"], probabilities: Float[Tensor, "N C"]) -> ChosenBoxes:
        """Choose among proposals; `boxes` has one box for all classes, or one per class. Class 0 is the background.

        Only a more probable box can drop a box, so boxes below a floor of probability need no search. The floor is
        lowered until enough boxes are left. The result equals that of a full search.
        """
        device, boxes, probabilities = boxes.device, boxes.cpu(), probabilities.cpu()
        floor = self.confidence
        while True:
            scores, classes = self._best(boxes, probabilities, floor)
            if floor == 0 or int((scores >= floor).sum()) >= min(self.least, len(boxes)):
                return ChosenBoxes(self._keep(scores).to(device), classes.to(device), scores.to(device))
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
    """Yield each class that has rows with a probability of at least the floor, with these rows."""
    kinds, rows = (probabilities[:, 1:] >= floor).T.nonzero(as_tuple=True)
    counts = kinds.bincount().tolist()
    for kind, of_class in enumerate(torch.split(rows, counts), 1):
        if len(of_class):
            yield kind, of_class


@dataclass(frozen=True)
class BestOfAll:
    """One NMS over all proposals by their best class, then the best `most` (the reference's `maxnms`).

    The overlaps are tried in turn until at least `least` regions are left.
    """

    least: int
    most: int
    overlaps: Sequence[float]

    def choose(self, boxes: Float[Tensor, "N C 4"], probabilities: Float[Tensor, "N C"]) -> ChosenBoxes:
        device, boxes, probabilities = boxes.device, boxes.cpu(), probabilities.cpu()
        scores, best = probabilities[:, 1:].max(1)
        own = boxes[torch.arange(len(boxes)), best + 1]
        rows = torch.zeros(0, dtype=torch.long)
        for overlap in self.overlaps:
            rows = DETECTRON2.nms(own, scores, overlap)[: self.most]
            if len(rows) >= self.least:
                break
        return ChosenBoxes(rows.to(device), best.to(device) + 1, scores.to(device))
