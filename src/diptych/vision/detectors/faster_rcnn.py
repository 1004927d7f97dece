"""torchvision's Faster R-CNN as a detector.

The papers also use a Faster R-CNN, but trained on Visual Genome instead of COCO.

A region is a proposal, as in bottom-up attention. Its feature is computed by the box head. Its box is refined for its
most probable class, and its score is the probability of this class. The feature of the whole image is the box head's
feature of a box around the image.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchvision.models import detection, get_model_weights
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FasterRCNN as Network
from torchvision.ops import clip_boxes_to_image

from diptych.core import IGNORE, FeatureContract, Losses, Record, Regions
from diptych.runtime.configs import of_json
from diptych.runtime.errors import DataError, RecipeError, nearest
from diptych.runtime.weight_files import read_weights
from diptych.vision.backbones.opened import refuse_unknown
from diptych.vision.backbones.torchvision import downloaded
from diptych.vision.detectors.detection_batch import DetectionBatch, DetectionUpdate
from diptych.vision.detectors.detector import NetworkDetector, Picture, regions_of
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import EXACTLY_100, Selection
from diptych.vision.detectors.weights import fill, restored, write_detector

KIND = "faster-rcnn"
WHOLE_NETWORKS = ("fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "fasterrcnn_mobilenet_v3_large_fpn",
                  "fasterrcnn_mobilenet_v3_large_320_fpn")  # fmt: skip
RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
           "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2")  # fmt: skip
Layer = Literal["fc6", "fc7"]


@dataclass(frozen=True)
class FasterRCNNConfig:
    """Architecture and sizes of a Faster R-CNN.

    `architecture`: a name in WHOLE_NETWORKS, or a name in RESNETS followed by `_fpn`.
    """

    architecture: str
    class_names: tuple[str, ...]  # the first is "background"
    layer: Layer = "fc7"
    shorter: int | None = None  # shorter side of the resized image, in pixels; None: torchvision's default
    longer: int | None = None

    def build(self) -> Network:
        """Build the network with random weights, without downloads. Raises RecipeError for an unknown architecture."""
        sizes = {"min_size": self.shorter, "max_size": self.longer}
        # Proposals have no score threshold, because a rule of exactly N regions may need proposals with low scores.
        options: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
        options |= {"num_classes": len(self.class_names), "rpn_score_thresh": 0.0}
        if self.architecture in WHOLE_NETWORKS:
            built = getattr(detection, self.architecture)(weights=None, weights_backbone=None, **options)
        elif (name := self.architecture.removesuffix("_fpn")) in RESNETS and name != self.architecture:
            norm = {"trainable_layers": 5, "norm_layer": nn.BatchNorm2d}
            built = Network(resnet_fpn_backbone(backbone_name=name, weights=None, **norm), **options)
        else:
            known = (*WHOLE_NETWORKS, *(f"{name}_fpn" for name in RESNETS))
            raise RecipeError(
                f"there is no Faster R-CNN named {self.architecture!r}; {nearest(self.architecture, known)}"
            )
        if self.layer == "fc6" and not hasattr(built.roi_heads.box_head, "fc6"):
            raise RecipeError(f"the box head of {self.architecture} has no layer fc6, only its output; use layer fc7")
        return cast(Network, built)


class FasterRCNN(NetworkDetector[Network]):
    """A Faster R-CNN detector: the network, and the rule that selects regions among its proposals."""

    def __init__(self, network: Network, shape: FasterRCNNConfig, selection: Selection = EXACTLY_100) -> None:
        self.network, self.shape, self.selection = network.eval(), shape, selection

    @property
    def contract(self) -> FeatureContract:
        linear = [layer for layer in self.network.roi_heads.box_head.modules() if isinstance(layer, nn.Linear)]
        size = "" if self.shape.shorter is None else f" at {self.shape.shorter} pixels"
        return FeatureContract(
            extractor=f"{self.shape.architecture} {self.shape.layer}{size}",
            weights=self.fingerprint,
            feature_size=linear[-1].out_features,
            class_names=self.shape.class_names,
            selection=str(self.selection),
            whole=True,
        )

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        device = self.device
        self._check_sides(pictures)
        images, _ = self.network.transform([picture.to(device).float() / 255 for picture in pictures], None)
        maps: Any = self.network.backbone(images.tensors)
        maps = maps if isinstance(maps, dict) else OrderedDict([("0", maps)])
        proposals, _ = self.network.rpn(images, maps, None)
        # A box around the whole image is added before the proposals of each image, and removed in `_one`.
        whole = [torch.tensor([[0.0, 0.0, w, h]], device=device) for h, w in images.image_sizes]
        boxes = [torch.cat(both) for both in zip(whole, proposals, strict=True)]
        features, logits, moves = self._describe(maps, boxes, images.image_sizes)
        refined = self.network.roi_heads.box_coder.decode(moves, boxes)
        counts = [len(box) for box in boxes]
        split = (torch.split(tensor, counts) for tensor in (features, logits.softmax(1), refined))
        return [self._one(*of_one) for of_one in zip(pictures, images.image_sizes, *split, strict=True)]

    def _check_sides(self, pictures: Sequence[Picture]) -> None:
        """Raise DataError for an image so narrow that, after resizing, its shorter side is less than one pixel."""
        longer: int = self.network.transform.max_size
        for height, width in (picture.shape[1:] for picture in pictures):
            if min(height, width) * longer < max(height, width):
                raise DataError(
                    f"an image of {width} x {height} pixels is too narrow: resized to {longer} pixels, it is less "
                    "than one pixel wide; cut the image into parts"
                )

    def _describe(
        self, maps: Mapping[str, Tensor], boxes: list[Tensor], sizes: list[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        heads = self.network.roi_heads
        pooled = heads.box_roi_pool(maps, boxes, sizes)
        last = heads.box_head(pooled)
        logits, moves = heads.box_predictor(last)
        if self.shape.layer == "fc6":
            last = cast(Any, heads.box_head).fc6(pooled.flatten(1)).relu()
        return last, logits, moves

    def _one(
        self,
        picture: Picture,
        size: tuple[int, int],
        features: Float[Tensor, "N F"],
        classes: Float[Tensor, "N C"],
        refined: Float[Tensor, "N C 4"],
    ) -> Regions:
        scores, best = classes[1:, 1:].max(1)
        boxes = clip_boxes_to_image(refined[1:][torch.arange(len(best)), best + 1], size)
        boxes = boxes / boxes.new_tensor([size[1], size[0]] * 2)
        rows = self.selection.choose(boxes, scores, best)
        more = {"classes": classes[1:][rows], "features": features[1:][rows], "whole": features[0]}
        return regions_of(picture, boxes[rows], scores[rows], **more)

    def save(self, folder: Path) -> None:
        described = {"kind": KIND, "shape": asdict(self.shape), "selection": asdict(self.selection)}
        write_detector(folder, described, self.network)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> FasterRCNN:
        shape = of_json(FasterRCNNConfig, described["shape"])
        return cls(restored(shape.build(), folder, described), shape, Selection(**described["selection"]))

    @classmethod
    def from_request(cls, request: DetectorRequest) -> FasterRCNN:
        """Open a network of WHOLE_NETWORKS with the weights of the request's file.

        Without a file, use torchvision's weights.
        """
        rule, rest = (request.selection or EXACTLY_100).changed(request.settings)
        refuse_unknown(rest, asdict(rule).keys(), request.name)
        if request.weights is None or request.name not in WHOLE_NETWORKS:
            return cls.from_torchvision(request.name, selection=rule)
        return cls.from_file(request.weights, coco_shape(request.name), rule)

    @classmethod
    def from_file(cls, path: Path, shape: FasterRCNNConfig, selection: Selection) -> FasterRCNN:
        """Open a weights file saved by torchvision or by a user: .safetensors, or a .pth that holds only tensors."""
        return cls(fill(shape.build(), read_weights(path), str(path)), shape, selection)

    @classmethod
    def from_torchvision(
        cls, architecture: str = "fasterrcnn_resnet50_fpn", layer: Layer = "fc7", selection: Selection = EXACTLY_100
    ) -> FasterRCNN:
        """Open a network with torchvision's COCO weights, which are downloaded once to torch's cache.

        Raises CheckpointError if the download fails.
        """
        if architecture not in WHOLE_NETWORKS:
            raise RecipeError(
                f"torchvision has no detector weights for {architecture!r}; {nearest(architecture, WHOLE_NETWORKS)}; "
                "or pass a file of weights"
            )
        shape = coco_shape(architecture, layer)
        return cls(fill(shape.build(), downloaded(architecture), architecture), shape, selection)


def coco_shape(architecture: str, layer: Layer = "fc7") -> FasterRCNNConfig:
    """Return the config of a network that fits torchvision's COCO weights."""
    classes = cast(Any, get_model_weights(architecture)).DEFAULT.meta["categories"]
    return FasterRCNNConfig(architecture, tuple(classes), layer)


class FasterRCNNDetection(DetectionUpdate):
    """The training step of Faster R-CNN. The class `Detection` is its counterpart for the small detector.

    Class 0 is the background.
    """

    def counts(self, batch: DetectionBatch) -> Losses:
        return {name: torch.tensor(len(batch)) for name in LOSSES}

    def losses(self, model: Any, batch: DetectionBatch) -> Iterator[Losses]:
        side = batch.squares.shape[-1]
        targets = [
            {"boxes": boxes[kinds != IGNORE] * side, "labels": kinds[kinds != IGNORE] + 1}
            for boxes, kinds in zip(batch.boxes, batch.kinds, strict=True)
        ]
        means = model(list(batch.squares.float() / 255), targets)
        # torchvision's losses are means over images. The trainer expects sums, and divides them by the number of images
        # of all ranks.
        yield {LOSSES_OF[name]: mean * len(batch) for name, mean in means.items()}


LOSSES_OF = {"loss_objectness": "proposal", "loss_rpn_box_reg": "proposal sides",
             "loss_classifier": "kind", "loss_box_reg": "sides"}  # fmt: skip
LOSSES = tuple(LOSSES_OF.values())
