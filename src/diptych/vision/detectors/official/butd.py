"""Bottom-up attention (Anderson et al., CVPR 2018): a Faster R-CNN on the ResNet map c4, trained on Visual Genome.

There are two versions, called dialects. `caffe` is the original, which computed all published features. `hf` is a later
port (airsplay, Hugging Face) with a different box convention, image size and selection rule. In both, class 0 is the
background and attribute 0 means `none`.
"""

# image ── stem, res2 to res4 ──▶ c4 (1/16) ─┬─ 3 x 3, objectness, deltas ──▶ NMS ──▶ 300 proposals ─┐
#                                            └─────────── RoIPool 14 x 14 of each ◀──────────────────┘
# ── res5 (dilated, so that it stays 14 x 14) ──▶ mean: the feature ──▶ classes ──▶ their embedding ──▶ attributes

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.nms import kernels
from diptych.vision.detectors.official.boxes import CAFFE, DETECTRON2, BoxConvention, by_anchor, shifted
from diptych.vision.detectors.official.choice import BestOfAll, ByClass
from diptych.vision.detectors.official.prepare import Prepared, by_factor, by_size
from diptych.vision.detectors.official.regions import OfficialSettings, Proposals, RawRegions, rois_of
from diptych.vision.detectors.official.resnet import ResNetShape, make_stage, pool_stem

Dialect = Literal["caffe", "hf"]
STRIDE, CELLS = 16, 14
ANCHOR_SIZES, ANCHOR_RATIOS = (64.0, 128.0, 256.0, 512.0), (0.5, 1.0, 2.0)
CONVENTIONS: dict[str, BoxConvention] = {"caffe": CAFFE, "hf": DETECTRON2}
# Divisors of the box deltas. They are 1 for `caffe`, because Caffe's files include them in the layer's weights.
DELTA_WEIGHTS = {"caffe": (1.0, 1.0, 1.0, 1.0), "hf": (10.0, 10.0, 5.0, 5.0)}
ROIS_AT_ONCE = 100  # regions per pass through res5, to limit its memory


@dataclass(frozen=True, kw_only=True)
class ButdSettings(OfficialSettings):
    """Settings of bottom-up attention that are not in the weights."""

    dialect: Dialect

    @classmethod
    def usual(cls, dialect: Dialect) -> ButdSettings:
        """Return the settings that the dialect's published extraction code uses."""
        if dialect == "caffe":
            return cls(
                dialect=dialect, shorter=600, longer=1000, before_nms=6000, after_nms=300, proposal_overlap=0.7,
                least_side=16.0, least=10, most=100, confidence=0.2, overlaps=(0.3,),
            )  # fmt: skip
        return cls(
            dialect=dialect, shorter=800, longer=1333, before_nms=6000, after_nms=300, proposal_overlap=0.7,
            least_side=0.0, least=36, most=36, confidence=0.0, overlaps=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        )  # fmt: skip


@dataclass(frozen=True)
class ButdShape:
    """Sizes of a bottom-up attention network."""

    trunk: ResNetShape
    rpn: int  # channels of the hidden layer of the region proposal network
    anchors: int  # anchors per cell of the map
    objectness: int  # objectness logits: one per anchor, or two (background and object)
    classes: int  # number of classes, with the background
    attributes: int  # number of attributes, with `none`; 0: the weights have no attribute layer
    embedding: int  # width of a class embedding, an input of the attribute layer
    attribute_width: int

    @classmethod
    def of(cls, sizes: dict[str, tuple[int, ...]], source: str) -> ButdShape:
        """Infer the sizes from the shapes of the tensors.

        Raises CheckpointError, KeyError or IndexError for a different network.
        """
        rpn, objectness, classes = (sizes[f"{name}.weight"][0] for name in ("rpn", "objectness", "classes"))
        attributes = (0, 0, 0)
        if "attributes.weight" in sizes:
            inner = sizes["attribute_inner.weight"][0]
            attributes = (sizes["attributes.weight"][0], sizes["embedding.weight"][1], inner)
        trunk = ResNetShape.of(sizes, source)
        return cls(trunk, rpn, sizes["anchors"][0], objectness, classes, *attributes)


class Butd(nn.Module):
    """The network of bottom-up attention."""

    shape: ButdShape
    anchors: Tensor

    def __init__(self, shape: ButdShape) -> None:
        super().__init__()
        self.shape = shape
        second, third, fourth, fifth = shape.trunk.stages
        self.stem = nn.Conv2d(3, shape.trunk.stem, 7, 2, 3)
        self.res2 = make_stage(second, 1, "1x1")
        self.res3 = make_stage(third, 2, "1x1")
        self.res4 = make_stage(fourth, 2, "1x1")
        self.rpn = nn.Conv2d(fourth.out, shape.rpn, 3, padding=1)
        self.objectness = nn.Conv2d(shape.rpn, shape.objectness, 1)
        self.deltas = nn.Conv2d(shape.rpn, 4 * shape.anchors, 1)
        self.res5 = make_stage(fifth, 1, "1x1", dilation=2)
        self.classes = nn.Linear(fifth.out, shape.classes)
        self.boxes = nn.Linear(fifth.out, 4 * shape.classes)
        if shape.attributes:
            self.embedding = nn.Embedding(shape.classes, shape.embedding)
            self.attribute_inner = nn.Linear(fifth.out + shape.embedding, shape.attribute_width)
            self.attributes = nn.Linear(shape.attribute_width, shape.attributes)
        self.register_buffer("anchors", torch.zeros(shape.anchors, 4))

    @property
    def feature_size(self) -> int:
        return self.classes.in_features

    def pooled_stem(self, images: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B c h4 w4"]:
        return pool_stem(self.stem(images).relu_(), padded=False)

    def maps(self, images: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B c h16 w16"]:
        """Return c4, the feature map after the fourth ResNet stage, with stride 16."""
        return cast(Tensor, self.res4(self.res3(self.res2(self.pooled_stem(images)))))

    def propose(self, maps: Float[Tensor, "B c h w"]) -> tuple[Float[Tensor, "B o h w"], Float[Tensor, "B d h w"]]:
        """Return objectness logits and box deltas (four channels per anchor).

        If there are two logits per anchor, all background logits come first.
        """
        inner = self.rpn(maps).relu_()
        return self.objectness(inner), self.deltas(inner)

    def pooled(self, maps: Float[Tensor, "B c h w"], rois: Float[Tensor, "N 5"]) -> Float[Tensor, "N c k k"]:
        """Pool the map inside each box. A row of `rois` is the image's index in the batch and x1 y1 x2 y2 in pixels."""
        cells = kernels().roi_pool(maps.float(), rois, 1 / STRIDE, CELLS, CELLS)[0]
        return cast(Tensor, cells.contiguous(memory_format=torch.channels_last))

    def describe(self, maps: Float[Tensor, "B c h w"], boxes: list[Float[Tensor, "_ 4"]]) -> Float[Tensor, "N F"]:
        """Return the features of all boxes, in the order of the images. `boxes` has one tensor per image."""
        rois = torch.split(rois_of(boxes), ROIS_AT_ONCE)
        return torch.cat([self.res5(self.pooled(maps, some)).float().mean((2, 3)) for some in rois])

    def heads(self, features: Float[Tensor, "N F"]) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return class logits, attribute logits (None without an attribute layer), and box deltas (four per class)."""
        classes = self.classes(features)
        if not self.shape.attributes:
            return classes, None, self.boxes(features)
        likeliest = self.embedding(classes.argmax(1))  # the most probable class may be the background
        inner = self.attribute_inner(torch.cat([features, likeliest], 1)).relu()
        return classes, self.attributes(inner), self.boxes(features)


class ButdPipeline:
    """Select regions with bottom-up attention, by the rules of one of its published versions (`dialect`)."""

    def __init__(self, network: Butd, settings: ButdSettings) -> None:
        self.network, self.settings = network, settings
        self.convention = CONVENTIONS[settings.dialect]

    def prepare(self, picture: Picture) -> Prepared:
        sides = (self.settings.shorter, self.settings.longer)
        return by_factor(picture, *sides) if self.settings.dialect == "caffe" else by_size(picture, *sides)

    def propose(self, images: Float[Tensor, "B 3 h w"], prepared: Sequence[Prepared]) -> tuple[Tensor, list[Tensor]]:
        maps = self.network.maps(images)
        logits, deltas = (output.float() for output in self.network.propose(maps))
        return maps, [self.proposals(*of_one).boxes for of_one in zip(logits, deltas, prepared, strict=True)]

    def describe(self, maps: Tensor, boxes: list[Tensor]) -> tuple[Tensor, ...]:
        features = self.network.describe(maps, boxes)
        classes, attributes, moves = self.network.heads(features)
        return features, classes, moves, *(() if attributes is None else (attributes,))

    def scores(self, logits: Float[Tensor, "o h w"]) -> Float[Tensor, "h w A"]:
        """Return the scores by which anchors are ranked.

        They are logits if there is one logit per anchor; otherwise they are probabilities of an object.
        """
        if len(logits) == len(self.network.anchors):
            return logits.permute(1, 2, 0)
        return logits.view(2, -1, *logits.shape[1:]).softmax(0)[1].permute(1, 2, 0)

    def proposals(
        self, logits: Float[Tensor, "o h w"], deltas: Float[Tensor, "d h w"], prepared: Prepared
    ) -> Proposals:
        """Return the proposals of one image: decode and clip its anchors, drop small boxes, and apply NMS."""
        convention, limits = self.convention, self.settings
        anchors = shifted(self.network.anchors, (logits.shape[1], logits.shape[2]), STRIDE)
        moves = by_anchor(deltas)
        boxes = convention.clip(convention.decode(anchors, moves), *prepared.size)
        scores = self.scores(logits).flatten()
        allowed = convention.wide_enough(boxes, limits.least_side * prepared.scale[0])
        if self.settings.dialect == "caffe":  # Caffe drops small boxes before the top-k, the port `hf` after it
            boxes, scores = boxes[allowed], scores[allowed]
        best = scores.argsort(descending=True, stable=True)[: limits.before_nms]
        if self.settings.dialect == "hf":
            best = best[allowed[best]]
        kept = best[convention.nms(boxes[best], scores[best], limits.proposal_overlap)[: limits.after_nms]]
        return Proposals(boxes[kept], scores[kept])

    def refined(
        self, prepared: Prepared, boxes: Float[Tensor, "N 4"], moves: Float[Tensor, "N d"]
    ) -> Float[Tensor, "N C 4"]:
        """Return a box for each class, not clipped.

        The boxes are in pixels of the original image (`caffe`) or of the resized image (`hf`).
        """
        if self.settings.dialect == "caffe":
            boxes = boxes / prepared.scale[0]
        weights = DELTA_WEIGHTS[self.settings.dialect]
        return self.convention.decode(boxes[:, None], moves.view(len(moves), moves.shape[1] // 4, 4), weights)

    def choose(
        self,
        prepared: Prepared,
        proposals: Float[Tensor, "N 4"],
        features: Float[Tensor, "N F"],
        classes: Float[Tensor, "N C"],
        moves: Float[Tensor, "N d"],
        attributes: Float[Tensor, "N A"] | None = None,
    ) -> RawRegions:
        limits, probabilities = self.settings, classes.softmax(1)
        scale = proposals.new_tensor(prepared.scale).repeat(2)
        if limits.dialect == "caffe":
            boxes = proposals / prepared.scale[0]
            rule = ByClass(limits.least, limits.most, limits.confidence, False, limits.overlaps[0], self.convention)
            rows = rule.choose(boxes, probabilities).rows
        else:
            refined = self.convention.clip(self.refined(prepared, proposals, moves), *prepared.size)
            best = probabilities[:, 1:].argmax(1) + 1
            boxes = refined[torch.arange(len(refined)), best] / scale
            rows = BestOfAll(limits.least, limits.most, limits.overlaps).choose(refined, probabilities).rows
        scores, best = probabilities[rows, 1:].max(1)
        regions = RawRegions(rows, boxes[rows], scores, best + 1, probabilities[rows], features[rows])
        if attributes is None:
            return regions
        # In `caffe`, the softmax over attributes includes `none`; in `hf` it does not.
        with_none = limits.dialect == "caffe"
        named = attributes[rows].softmax(1)[:, 1:] if with_none else attributes[rows, 1:].softmax(1)
        attribute_scores, attribute = named.max(1)
        return replace(regions, attributes=attribute + 1, attribute_scores=attribute_scores)
