"""The rules of the official extractors for selecting and ordering regions among the proposals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.vision.detectors.official.boxes import DETECTRON2, BoxConvention

LOWEST = 1e-6  # at this probability or below, `choose` sets its floor to 0 and searches all boxes


@dataclass(frozen=True)
class ChosenBoxes:
    """The proposals that are chosen as regions. `rows`: their indices, in order.

    `classes`, `scores`: one per proposal, chosen or not.
    """

    rows: Int[Tensor, "R"]
    classes: Int[Tensor, "N"]  # class of each proposal; 0: background
    scores: Float[Tensor, "N"]


@dataclass(frozen=True)
class ByClass:
    """NMS within each class, then a threshold on the confidence of each proposal.

    The confidence is the highest probability of the classes for which NMS kept the proposal. Proposals above the
    threshold stay in their order. If fewer than `least` pass, the `least` most confident are taken instead. If more
    than `most` pass, the `most` most confident are taken. Both are ordered by confidence.
    """

    least: int
    most: int
    confidence: float
    strict: bool  # True: the confidence must exceed the threshold; False: it may be equal
    overlap: float
    convention: BoxConvention

    def choose(self, boxes: Float[Tensor, "N *C 4"], probabilities: Float[Tensor, "N C"]) -> ChosenBoxes:
        """Choose among proposals. `boxes` has one box per proposal, or one per proposal and class.

        Class 0 is the background.

        In NMS, a box can be suppressed only by a more probable box. So boxes below a certain probability, the floor,
        can be left out at first. The floor is lowered until enough boxes remain. The result is the same as with all
        boxes.
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
    """Yield each class except the background, with the rows whose probability for the class is at least `floor`."""
    kinds, rows = (probabilities[:, 1:] >= floor).T.nonzero(as_tuple=True)
    counts = kinds.bincount().tolist()
    for kind, of_class in enumerate(torch.split(rows, counts), 1):
        if len(of_class):
            yield kind, of_class


@dataclass(frozen=True)
class BestOfAll:
    """NMS over all proposals by their most probable class, then the best `most` (called `maxnms` in the reference
    code).

    The IoU thresholds in `overlaps` are tried in turn until at least `least` regions are left.
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
