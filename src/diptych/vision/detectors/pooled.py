"""Combine the boxes of a network (a proposer) with features of a backbone: the mean of its last map inside each box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.backbones.opened import refuse_unknown
from diptych.vision.detectors.detector import Detector, NetworkDetector, Picture, TracedDetector, regions_of
from diptych.vision.detectors.grid import ONNX, Grid, backbone_of
from diptych.vision.detectors.letterbox import to_square
from diptych.vision.detectors.nms import LARGE
from diptych.vision.detectors.pooling import pool_regions
from diptych.vision.detectors.proposers.centernet import CenternetProposer
from diptych.vision.detectors.proposers.graph_proposer import GraphProposer
from diptych.vision.detectors.proposers.nanodet import NanodetProposer
from diptych.vision.detectors.proposers.onnx import OnnxProposer, is_backbone
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer
from diptych.vision.detectors.proposers.tfjs import TFJS, named
from diptych.vision.detectors.proposers.transformers import TransformersProposer
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.weights import WEIGHTS, fill, read_detector_weights, write_detector

KIND, HF = "pooled", "hf:"
CELLS = 7  # cells per region and axis; the feature is their mean
OUTPUTS = ("found_boxes", "found_scores", "found_classes", "first_map", "second_map")  # of `traced`
PROPOSER, BACKBONE = "proposer", "backbone"
PROPOSERS: dict[str, Any] = {
    "onnx": OnnxProposer,
    "nanodet": NanodetProposer,
    "centernet": CenternetProposer,
    "transformers": TransformersProposer,
}


class PooledDetector(NetworkDetector[nn.ModuleDict]):
    """A detector with the boxes of a proposer and the features of a backbone.

    Without a backbone, the proposer computes the features.
    """

    def __init__(self, proposer: Proposer, backbone: Backbone | None, selection: Selection) -> None:
        if backbone is None and not proposer.feature_size:
            raise RecipeError(
                f"{proposer.name} finds boxes but computes no features; add --backbone timm/NAME, onnx:FILE or FOLDER "
                "(of a grid detector), or export it with an output `features`"
            )
        self.proposer, self.backbone, self.selection = proposer, backbone, selection
        parts: dict[str, nn.Module] = {PROPOSER: proposer} | ({} if backbone is None else {BACKBONE: backbone})
        self.network = nn.ModuleDict(parts).eval()

    @property
    def contract(self) -> FeatureContract:
        whose = "" if self.backbone is None else f"; features: {self.backbone.name} at {self.backbone.side} pixels"
        return FeatureContract(
            extractor=self.proposer.name + whose,
            weights=self.fingerprint,
            feature_size=self.proposer.feature_size if self.backbone is None else self.backbone.width,
            class_names=self.proposer.class_names,
            selection=str(self.selection),
        )

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        candidates = self.proposer.propose(pictures)
        regions = [self._chosen(*of_one) for of_one in zip(pictures, candidates, records, strict=True)]
        if self.backbone is not None:
            cells = zip(regions, *self.backbone.maps_of(pictures), strict=True)
            return [replace(one, features=_pooled(one.boxes, of, share)) for one, of, share in cells]
        return [_described(*of_one) for of_one in zip(regions, candidates, strict=True)]

    def _chosen(self, picture: Picture, candidates: Candidates, record: Record) -> Regions:
        """Select regions among the boxes that are not empty.

        Raises DataError for boxes or scores that are NaN or infinite.
        """
        boxes, scores, labels, features = candidates.boxes, candidates.scores, candidates.labels, candidates.features
        if not (boxes.isfinite().all() and scores.isfinite().all()):
            raise DataError(f"{self.proposer.name} found boxes or scores that are not finite numbers", key=record.key)
        wide = (boxes[:, 2:] > boxes[:, :2]).all(1).nonzero()[:, 0]
        classes = labels.argmax(1) if labels is not None else torch.zeros_like(scores).long()
        rows = wide[self.selection.choose(boxes[wide], scores[wide], classes[wide])]
        labels, features = (None if one is None else one[rows].float() for one in (labels, features))
        return regions_of(picture, boxes[rows], scores[rows], classes=labels, features=features)

    def traced(self, reduced: bool) -> TracedDetector | None:
        backbone, finder = self.backbone, self.proposer
        if not isinstance(finder, GraphProposer) or not (backbone is None or backbone.traceable):
            return None
        side, rule = finder.shape.side, asdict(self.selection)
        settings = {"side": side, "candidates": LARGE, "selection": rule, "maps": backbone.side if backbone else side}
        return TracedDetector(finder, side, OUTPUTS, settings, backbone)

    def save(self, folder: Path) -> None:
        described = {
            "kind": KIND, PROPOSER: dict(self.proposer.described), "selection": asdict(self.selection),
            BACKBONE: None if self.backbone is None else self.backbone.described,
        }  # fmt: skip
        write_detector(folder, described, self.network)

    @classmethod
    def from_request(cls, request: DetectorRequest) -> Detector:
        """Open `hf:NAME`, `tfjs:FILE#MODEL` or an ONNX file.

        An ONNX file of a backbone, which has no boxes, is opened as a `Grid`.

        All except a grid also accept settings of the selection rule, such as `most=50`.
        """
        path = Path(request.name.removeprefix(ONNX))
        _, values = Selection().changed(request.settings)
        proposer: Proposer
        if request.name.startswith(HF):
            refuse_unknown(values, asdict(Selection()).keys(), request.name)
            proposer = TransformersProposer.of(request.name.removeprefix(HF), request.weights)
        elif request.name.startswith(TFJS):
            kind = CenternetProposer if named(request.name)[1] == "centernet" else NanodetProposer
            proposer = kind.read(request.name, values)
        elif request.backbone is None and request.selection is None and is_backbone(path, values):
            if request.class_names:
                raise RecipeError(f"{path} is a backbone, which has no classes; leave out --class-names")
            rest = {key: value for key, value in request.settings.items() if key != "cells"}
            return Grid(Backbone.from_onnx(path, rest, request.report), request.settings.get("cells"))
        else:
            proposer = OnnxProposer.read(path, values, request.class_names, request.report)
        backbone = None if request.backbone is None else backbone_of(request.backbone, "--backbone")
        rule, _ = (request.selection or proposer.usual).changed(request.settings)
        return cls(proposer, backbone, rule)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> PooledDetector:
        source, weights = str(folder / WEIGHTS), read_detector_weights(folder, described)

        def part(name: str) -> dict[str, Tensor]:
            return {key.partition(".")[2]: value for key, value in weights.items() if key.startswith(f"{name}.")}

        proposer: Proposer = PROPOSERS[described[PROPOSER]["library"]].from_described(described[PROPOSER])
        fill(proposer, part(PROPOSER), source)
        features = described[BACKBONE]
        backbone = None if features is None else Backbone.from_described(features, part(BACKBONE), source)
        return cls(proposer, backbone, Selection(**described["selection"]))


def _described(regions: Regions, candidates: Candidates) -> Regions:
    """Return the regions with features.

    If `candidates` has feature maps, the feature is their mean inside the region's box.
    """
    if candidates.share is None:
        return regions
    pooled = [_pooled(regions.boxes, cells, candidates.share) for cells in candidates.maps]
    return replace(regions, features=torch.cat(pooled, 1))


def _pooled(
    boxes: Float[Tensor, "R 4"], cells: Float[Tensor, "F h w"], share: Float[Tensor, "2"]
) -> Float[Tensor, "R F"]:
    pooled = pool_regions(cells[None], to_square(boxes.to(cells.device), share)[None], CELLS)
    return pooled[0].mean((2, 3)).float().cpu()
