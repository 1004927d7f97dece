"""Unified VLP's detector (Zhou et al., AAAI 2020): Detectron's Faster R-CNN, ResNeXt-101 64 x 4d with FPN.

The regions have the refined boxes; in bottom-up attention they have the proposals' boxes. A region's feature is fc6, to
which the Unified VLP model applies its own layer fc7.
"""

# image ── stem, res2 to res5 ──▶ pyramid P2 to P6 ─┬─ 3 x 3, logits, deltas; NMS of each map ──▶ best proposals ─┐
#                                                   └─────── RoIAlign 7 x 7, from the map that fits its size ◀────┘
# ── fc6 with its ReLU: the feature ── fc7 ──▶ classes (the background first) and a box for each

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import interpolate

from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.nms import kernels
from diptych.vision.detectors.official.boxes import DETECTRON, by_anchor, shifted
from diptych.vision.detectors.official.choice import ByClass
from diptych.vision.detectors.official.prepare import Prepared, by_factor
from diptych.vision.detectors.official.regions import OfficialSettings, Proposals, RawRegions, rois_of
from diptych.vision.detectors.official.resnet import ResNetShape, Stride, make_stage, pool_stem

FIRST, LAST_POOLED, LAST = 2, 5, 6  # maps of the pyramid, P2 (stride 4 pixels) to P6 (stride 64)
CANONICAL, CANONICAL_MAP = 224, 4  # a region of 224 x 224 pixels is pooled from P4
COARSEST = 32  # stride of res5; the image's sides are padded to a multiple of it


@dataclass(frozen=True, kw_only=True)
class X101Settings(OfficialSettings):
    """Settings of Detectron's ResNeXt-101 that are not in the weights."""

    stride: Stride = "3x3"  # the convolution of a bottleneck that has the stride
    samples: int = 2  # RoIAlign's sampling points per cell and axis; 0: one per pixel
    delta_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    anchor_size: float = 32.0  # in pixels on P2; it doubles with each coarser map
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)

    @classmethod
    def usual(cls) -> X101Settings:
        """Return the defaults of Detectron's code, with the selection rule of Unified VLP's `extract_features.py`."""
        return cls(
            shorter=600, longer=1000, before_nms=12000, after_nms=2000, proposal_overlap=0.7, least_side=0.0, least=100,
            most=100, confidence=0.2, overlaps=(0.3,),
        )  # fmt: skip


@dataclass(frozen=True)
class X101Shape:
    """Sizes of a network with a feature pyramid."""

    trunk: ResNetShape
    width: int  # channels of the pyramid's maps
    anchors: int  # anchors per cell of a map
    cells: int  # cells per region and axis after RoIAlign
    fc6: int
    fc7: int
    classes: int  # number of classes, with the background

    @classmethod
    def of(cls, sizes: dict[str, tuple[int, ...]], source: str) -> X101Shape:
        """Infer the sizes from the shapes of the tensors.

        Raises CheckpointError, KeyError or IndexError for a different network.
        """
        names = ("inner.0", "objectness", "fc6", "fc7", "classes")
        width, anchors, fc6, fc7, classes = (sizes[f"{name}.weight"][0] for name in names)
        cells = round((sizes["fc6.weight"][1] / width) ** 0.5)
        return cls(ResNetShape.of(sizes, source), width, anchors, cells, fc6, fc7, classes)


class X101(nn.Module):
    """Detectron's network: trunk, feature pyramid, proposal head and box head."""

    shape: X101Shape

    def __init__(self, shape: X101Shape, stride: Stride = "3x3") -> None:
        super().__init__()
        self.shape = shape
        stages = shape.trunk.stages
        self.stem = nn.Conv2d(3, shape.trunk.stem, 7, 2, 3)
        self.res2, self.res3, self.res4, self.res5 = (
            make_stage(stage, 2 if number else 1, stride) for number, stage in enumerate(stages)
        )
        self.inner = nn.ModuleList(nn.Conv2d(stage.out, shape.width, 1) for stage in stages)
        self.outer = nn.ModuleList(nn.Conv2d(shape.width, shape.width, 3, padding=1) for _ in stages)
        self.rpn = nn.Conv2d(shape.width, shape.width, 3, padding=1)
        self.objectness = nn.Conv2d(shape.width, shape.anchors, 1)
        self.deltas = nn.Conv2d(shape.width, 4 * shape.anchors, 1)
        self.fc6 = nn.Linear(shape.width * shape.cells**2, shape.fc6)
        self.fc7 = nn.Linear(shape.fc6, shape.fc7)
        self.classes = nn.Linear(shape.fc7, shape.classes)
        self.boxes = nn.Linear(shape.fc7, 4 * shape.classes)

    @property
    def feature_size(self) -> int:
        return self.fc6.out_features

    def trunk(self, images: Float[Tensor, "B 3 h w"]) -> list[Tensor]:
        """Return five feature maps: the stem's after pooling, and the outputs of res2 to res5."""
        outputs = [pool_stem(self.stem(images).relu_(), padded=True)]
        for stage in (self.res2, self.res3, self.res4, self.res5):
            outputs.append(stage(outputs[-1]))
        return outputs

    def pyramid(self, stages: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps P2 to P6 of the feature pyramid. `stages`: the outputs of res2 to res5."""
        coarser: Tensor | None = None
        maps: list[Tensor] = []
        for stage, inner, outer in zip(reversed(stages), reversed(self.inner), reversed(self.outer), strict=True):
            lateral = inner(stage)
            if coarser is not None:
                lateral = lateral + interpolate(coarser, scale_factor=2.0, mode="nearest")
            coarser = lateral
            maps.insert(0, outer(lateral))
        return [*maps, maps[-1][..., ::2, ::2]]

    def propose(self, level: Float[Tensor, "B c h w"]) -> tuple[Float[Tensor, "B a h w"], Float[Tensor, "B d h w"]]:
        """Return objectness logits (one per anchor) and box deltas (four per anchor) of one map of the pyramid."""
        inner = self.rpn(level).relu_()
        return self.objectness(inner), self.deltas(inner)

    def pooled(
        self, maps: Sequence[Tensor], rois: Float[Tensor, "N 5"], levels: Int[Tensor, "N"], samples: int
    ) -> Float[Tensor, "N c k k"]:
        """Pool each box from the map of its level. A row of `rois` is the image's index and x1 y1 x2 y2 in pixels."""
        cells = self.shape.cells
        pooled = rois.new_zeros(len(rois), maps[0].shape[1], cells, cells)
        for level in range(FIRST, LAST_POOLED + 1):
            rows = (levels == level).nonzero()[:, 0]
            some = maps[level - FIRST].float()
            # Not aligned (False): in Detectron, integer coordinates are the centres of pixels.
            pooled[rows] = kernels().roi_align(some, rois[rows], 2.0**-level, cells, cells, samples, False)
        return pooled

    def heads(self, pooled: Float[Tensor, "N c k k"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return fc6 (the feature) and fc7, both after ReLU, class logits, and box deltas (four per class)."""
        fc6 = self.fc6(pooled.flatten(1)).relu()
        fc7 = self.fc7(fc6).relu()
        return fc6, fc7, self.classes(fc7), self.boxes(fc7)


def levels_of(boxes: Float[Tensor, "N 4"]) -> Int[Tensor, "N"]:
    """Return for each box the level of the feature pyramid, 2 to 5, from which it is pooled."""
    side = DETECTRON.sides(boxes).prod(-1).sqrt()
    level = (CANONICAL_MAP + torch.log2(side / CANONICAL + 1e-6)).floor()
    return level.clamp(FIRST, LAST_POOLED).long()


class X101Pipeline:
    """Select regions with Detectron's ResNeXt-101, with the rules of Detectron's code."""

    def __init__(self, network: X101, settings: X101Settings) -> None:
        self.network, self.settings = network, settings

    def prepare(self, picture: Picture) -> Prepared:
        """Resize and pad an image.

        As in Detectron, all later steps treat the padding as part of the image; boxes are clipped to the padded size.
        """
        return by_factor(picture, self.settings.shorter, self.settings.longer, COARSEST)

    def propose(
        self, images: Float[Tensor, "B 3 h w"], prepared: Sequence[Prepared]
    ) -> tuple[list[Tensor], list[Tensor]]:
        maps = self.network.pyramid(self.network.trunk(images)[1:])
        outputs = [[output.float() for output in self.network.propose(level)] for level in maps]
        per_image = (
            [tuple(output[number] for output in level) for level in outputs] for number in range(len(prepared))
        )
        return maps, [self.proposals(*of_one).boxes for of_one in zip(per_image, prepared, strict=True)]

    def describe(self, maps: list[Tensor], boxes: list[Tensor]) -> tuple[Tensor, ...]:
        rois = rois_of(boxes)
        pooled = self.network.pooled(maps, rois, levels_of(rois[:, 1:]), self.settings.samples)
        features, _, classes, moves = self.network.heads(pooled)
        return features, classes, moves

    def anchors(self, level: int) -> Float[Tensor, "A 4"]:
        """Return the anchors of the first cell of the map at `level`."""
        size = self.settings.anchor_size * 2 ** (level - FIRST)
        return DETECTRON.anchors(2**level, (size,), self.settings.anchor_ratios)

    def proposals_of(
        self, level: int, logits: Float[Tensor, "a h w"], deltas: Float[Tensor, "d h w"], prepared: Prepared
    ) -> Proposals:
        """Return the proposals of one map: decode and clip the best anchors, drop small boxes, and apply NMS."""
        limits = self.settings
        scores = logits.sigmoid().permute(1, 2, 0).flatten()
        best = scores.argsort(descending=True, stable=True)[: limits.before_nms]
        anchors = shifted(self.anchors(level).to(scores), (logits.shape[1], logits.shape[2]), 2**level)
        moves = by_anchor(deltas)
        height, width = prepared.size
        boxes = DETECTRON.clip(DETECTRON.decode(anchors[best], moves[best]), height, width)
        centres = boxes[:, :2] + DETECTRON.sides(boxes) / 2
        inside = (centres < centres.new_tensor([width, height])).all(-1)
        allowed = inside & DETECTRON.wide_enough(boxes, limits.least_side * prepared.scale[0])
        boxes, scores = boxes[allowed], scores[best][allowed]
        kept = DETECTRON.nms(boxes, scores, limits.proposal_overlap)[: limits.after_nms]
        return Proposals(boxes[kept], scores[kept])

    def proposals(self, outputs: Sequence[tuple[Tensor, ...]], prepared: Prepared) -> Proposals:
        """Return the best proposals over all maps. `outputs`: the logits and deltas of each map."""
        numbered_maps = enumerate(outputs, FIRST)
        levels = [self.proposals_of(level, logits, deltas, prepared) for level, (logits, deltas) in numbered_maps]
        boxes, scores = (torch.cat(parts) for parts in zip(*(vars(level).values() for level in levels), strict=True))
        best = scores.argsort(descending=True, stable=True)[: self.settings.after_nms]
        return Proposals(boxes[best], scores[best])

    def refined(
        self, prepared: Prepared, boxes: Float[Tensor, "N 4"], moves: Float[Tensor, "N d"]
    ) -> Float[Tensor, "N C 4"]:
        """Return each proposal's refined box for each class, in pixels of the original image."""
        width, height = prepared.picture
        own = (boxes / prepared.scale[0])[:, None]
        decoded = DETECTRON.decode(own, moves.view(len(moves), moves.shape[1] // 4, 4), self.settings.delta_weights)
        return DETECTRON.clip(decoded, height, width)

    def choose(
        self,
        prepared: Prepared,
        proposals: Float[Tensor, "N 4"],
        features: Float[Tensor, "N F"],
        classes: Float[Tensor, "N C"],
        moves: Float[Tensor, "N d"],
    ) -> RawRegions:
        limits, probabilities = self.settings, classes.softmax(1)
        refined = self.refined(prepared, proposals, moves)
        rule = ByClass(limits.least, limits.most, limits.confidence, True, limits.overlaps[0], DETECTRON)
        chosen = rule.choose(refined, probabilities)
        rows, best = chosen.rows, chosen.classes[chosen.rows]
        return RawRegions(rows, refined[rows, best], chosen.scores[rows], best, probabilities[rows], features[rows])
