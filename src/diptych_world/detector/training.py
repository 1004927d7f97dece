"""Train the small detector: make batches of squares with their ground truth, and compute the losses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, max_pool2d

from diptych.core import IGNORE, Losses, Record
from diptych.core.regions import shared_and_union
from diptych.runtime.errors import DataError
from diptych.vision.detectors.detection_batch import DetectionBatch, DetectionUpdate
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import letterbox, to_square
from diptych_world.detector.network import STRIDE, DetectorConfig, Maps, SmallDetector

NONE, UNCLEAR = -1, -2  # NONE: a box shows no object. UNCLEAR: it shows too little of an object.
SPREAD = 0.54  # share of an object's width that counts as its centre (TTFNet's alpha)


def detection_batch(
    shape: DetectorConfig,
    pictures: Sequence[Picture],
    records: Sequence[Record],
    scenes: Sequence[Mapping[str, str]] | None = None,
) -> DetectionBatch:
    """Make a batch of images and the objects of their records.

    `scenes`: attributes of each whole image, such as place -> beach, if known.

    Raises DataError if an object has a kind that the detector does not have.
    """
    squares, shares = letterbox(pictures, shape.side)
    most = max([1, *(len(record.objects) for record in records)])
    boxes = torch.zeros(len(records), most, 4)
    labels = {name: torch.full((len(records), most), IGNORE) for name in ("kind", *shape.attributes)}
    for row, (record, share) in enumerate(zip(records, shares, strict=True)):
        for column, thing in enumerate(record.objects):
            if thing.kind not in shape.kinds:
                raise DataError(f"unknown object kind {thing.kind!r}; train a new detector", key=record.key)
            boxes[row, column] = to_square(torch.tensor(thing.box), share)
            labels["kind"][row, column] = shape.kinds.index(thing.kind)
            for name, values in shape.attributes.items():
                if thing.attributes.get(name) in values:
                    labels[name][row, column] = values.index(thing.attributes[name])
    scene = {name: torch.full((len(records),), IGNORE) for name in shape.scene}
    for row, words in enumerate(scenes or ()):
        for name, values in shape.scene.items():
            if words.get(name) in values:
                scene[name][row] = values.index(words[name])
    kinds = labels.pop("kind")
    return DetectionBatch([record.key for record in records], squares, boxes, kinds, labels, scene)


@dataclass(frozen=True)
class Detection(DetectionUpdate):
    """The training step of the small detector."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"sides": 5.0})
    jitter: float = 0.1  # true boxes are moved by up to this share of their sides, because detected boxes are not exact
    copies: int = 1  # jittered copies of each true box; more copies cost little time
    detected: int = 6  # detected boxes per image that are also trained on; wrong boxes are background

    def counts(self, batch: DetectionBatch) -> Losses:
        """Return the number of targets of each loss, to divide the summed losses by."""
        objects = (batch.kinds != IGNORE).sum()
        known = {**batch.attributes, **batch.scene}
        # Only true boxes are counted, because the number of detected boxes varies from step to step.
        of_objects = dict.fromkeys(("heat", "sides", "kind", "moves"), objects)
        return of_objects | {name: (labels != IGNORE).sum() for name, labels in known.items()}

    def losses(self, model: Any, batch: DetectionBatch) -> Iterator[Losses]:
        """Yield the summed losses of a batch, in one dict."""
        detector: SmallDetector = model
        maps = detector(batch.squares)
        spots = centre_spots(batch, maps.heat.shape[1], maps.heat.shape[2], detector.shape.side)
        losses = {"heat": _heat_loss(maps.heat, spots), "sides": _sides_loss(detector, maps, spots, batch)}
        yield losses | self._described(detector, maps, batch)

    def _described(self, detector: SmallDetector, maps: Maps, batch: DetectionBatch) -> Losses:
        """Return the losses on jittered true boxes, on detected boxes, and on the whole image."""
        present = batch.kinds != IGNORE
        sizes = (batch.boxes[..., 2:] - batch.boxes[..., :2]).repeat(1, self.copies, 2)
        moved = batch.boxes.repeat(1, self.copies, 1) + self.jitter * (torch.rand_like(sizes) * 2 - 1) * sizes
        detected = best_boxes(detector, maps, self.detected)[0].detach()
        boxes = torch.cat([moved.clamp(0, 1), detected], 1)
        features = detector.describe(maps, boxes)
        shown = _shown(boxes, batch.boxes, present)
        shown[:, : moved.shape[1]][~present.repeat(1, self.copies)] = UNCLEAR
        share = torch.ones_like(boxes[..., 0])  # weights: all copies of an object count as one
        share[:, : moved.shape[1]] /= self.copies
        kinds = torch.where(shown >= 0, batch.kinds.gather(1, shown.clamp(min=0)) + 1, 0)  # class 0 is the background
        kinds = torch.where(shown == UNCLEAR, IGNORE, kinds)
        logits = detector.region_heads["kind"](features).flatten(0, 1)
        losses = {"kind": _entropy(logits, kinds.flatten(), share.flatten())}
        row, column = (shown >= 0).nonzero(as_tuple=True)
        thing, features, share = shown[row, column], features[row, column], share[row, column]
        for name, labels in batch.attributes.items():
            losses[name] = _entropy(detector.region_heads[name](features), labels[row, thing], share)
        from torchvision.ops import generalized_box_iou_loss

        refined = detector.refine(boxes[row, column], features)
        losses["moves"] = (generalized_box_iou_loss(refined, batch.boxes[row, thing]) * share).sum()
        return losses | {
            name: _entropy(head(maps.whole), batch.scene[name]) for name, head in detector.scene_heads.items()
        }


def _shown(
    boxes: Float[Tensor, "B K 4"], truth: Float[Tensor, "B N 4"], present: Bool[Tensor, "B N"]
) -> Int[Tensor, "B K"]:
    """Return the index of the object that each box shows. It is NONE for an IoU up to 0.3, and UNCLEAR up to 0.5."""
    # torchvision's box_iou accepts only one image.
    shared, union = shared_and_union(boxes[:, :, None], truth[:, None])
    overlap, thing = (shared / union.clamp(min=1e-9) * present[:, None]).max(2)
    unclear = torch.full_like(thing, UNCLEAR).where(overlap > 0.3, NONE)
    return thing.where(overlap > 0.5, unclear)


def _entropy(logits: Float[Tensor, "K C"], labels: Int[Tensor, "K"], share: Float[Tensor, "K"] | None = None) -> Tensor:
    """Return the sum of the cross-entropies. `share`: their weights."""
    each = cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="none")
    return (each if share is None else each * share).sum()


def best_boxes(detector: SmallDetector, maps: Maps, count: int) -> tuple[Float[Tensor, "B K 4"], Float[Tensor, "B K"]]:
    """Return the boxes and scores of the `count` highest peaks in the heat map of each image.

    Boxes are fractions of the square.
    """
    heat = maps.heat.sigmoid()
    # A cell that is not the highest of its 3 x 3 neighbours belongs to a centre in another cell. It stays a candidate
    # with a very low score, so that a selection rule of exactly N regions gets N.
    heat = torch.where(max_pool2d(heat, 3, 1, 1) == heat, heat, heat * 1e-3).flatten(1)
    scores, where = heat.topk(min(count, heat.shape[1]))
    boxes = detector.boxes(maps.sides).clamp(0, 1)
    rows = torch.arange(boxes.shape[0], device=boxes.device)[:, None]
    return boxes[rows, where], scores


def centre_spots(batch: DetectionBatch, height: int, width: int, side: int) -> Float[Tensor, "B N h w"]:
    """Return the target heat map of each object: a Gaussian whose width depends on the object's.

    It is 1 in the cell of the centre.
    """
    cells = batch.boxes * side / STRIDE
    centre = ((cells[..., :2] + cells[..., 2:]) / 2).floor()
    spread = (SPREAD * (cells[..., 2:] - cells[..., :2]) + 1) / 6
    away_x = torch.arange(width, device=cells.device) - centre[..., 0, None]
    away_y = torch.arange(height, device=cells.device) - centre[..., 1, None]
    across = (-(away_x**2) / (2 * spread[..., 0, None] ** 2)).exp()
    down = (-(away_y**2) / (2 * spread[..., 1, None] ** 2)).exp()
    spots = down[..., :, None] * across[..., None, :]
    return spots * (batch.kinds != IGNORE)[..., None, None]


def _heat_loss(heat: Float[Tensor, "B h w"], spots: Float[Tensor, "B N h w"]) -> Tensor:
    """Return CenterNet's focal loss, summed. Errors in cells near a centre have a lower weight."""
    wanted = spots.amax(1)
    predicted = heat.sigmoid()
    at_centre = -logsigmoid(heat) * (1 - predicted) ** 2
    elsewhere = -logsigmoid(-heat) * predicted**2 * (1 - wanted) ** 4
    return torch.where(wanted == 1, at_centre, elsewhere).sum()


def _sides_loss(detector: SmallDetector, maps: Maps, spots: Float[Tensor, "B N h w"], batch: DetectionBatch) -> Tensor:
    """Return the generalized IoU loss of the boxes that cells near a centre predict.

    The weights of the cells sum to 1 for each object.
    """
    from torchvision.ops import generalized_box_iou_loss

    spots = spots.flatten(2)
    nearest = spots.amax(1)
    weights = torch.where((spots == nearest[:, None]) & (spots > 0.2), spots, 0)
    weights = weights / weights.sum(2, keepdim=True).clamp(min=1e-6)
    row, thing, cell = weights.nonzero(as_tuple=True)
    predicted = detector.boxes(maps.sides)[row, cell]
    losses: Tensor = generalized_box_iou_loss(predicted, batch.boxes[row, thing], reduction="none")
    return (losses * weights[row, thing, cell]).sum()
