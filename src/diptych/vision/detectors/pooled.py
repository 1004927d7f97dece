"""Boxes of one network, features of another: each region's is the mean of a backbone's last map inside its box."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.detectors.grid import ONNX, Grid, backbone_of
from diptych.vision.detectors.letterbox import letterbox, to_square
from diptych.vision.detectors.pooling import pool_regions
from diptych.vision.detectors.proposers.onnx import OnnxProposer, is_backbone
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer
from diptych.vision.detectors.proposers.transformers import TransformersProposer
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.selection import EXACTLY_100, Selection
from diptych.vision.detectors.weights import WEIGHTS, fill, fingerprint, read_weights, write_detector

KIND, HF = "pooled", "hf:"
CELLS = 7  # of a region, both ways
PROPOSER, BACKBONE = "proposer", "backbone"


class PooledDetector:
    """Without a backbone the features are the proposer's own."""

    needs_pictures = True

    def __init__(self, proposer: Proposer, backbone: Backbone | None, selection: Selection = EXACTLY_100) -> None:
        if backbone is None and not proposer.feature_size:
            raise RecipeError(
                f"{proposer.name} finds boxes and gives no features; say whose features they get: --backbone "
                "timm/NAME, for instance"
            )
        self.proposer, self.backbone, self.selection = proposer, backbone, selection
        parts: dict[str, nn.Module] = {PROPOSER: proposer} | ({} if backbone is None else {BACKBONE: backbone})
        self.network = nn.ModuleDict(parts).eval()

    @property
    def contract(self) -> FeatureContract:
        whose = "" if self.backbone is None else f"; features: {self.backbone.name} at {self.backbone.side} pixels"
        return FeatureContract(
            extractor=self.proposer.name + whose,
            weights=self._fingerprint,
            feature_size=self.proposer.feature_size if self.backbone is None else self.backbone.width,
            class_names=self.proposer.class_names,
            selection=str(self.selection),
        )

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.network)

    @torch.no_grad()
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if not pictures:
            return []
        chosen = [
            self._chosen(one, record) for one, record in zip(self.proposer.propose(pictures), records, strict=True)
        ]
        features = [one.features for one in chosen] if self.backbone is None else self._pooled(pictures, chosen)
        return [
            Regions(
                boxes=one.boxes.cpu(),
                scores=one.scores.cpu(),
                size=(picture.shape[2], picture.shape[1]),
                classes=None if one.labels is None else one.labels.cpu(),
                features=None if of is None else of.float().cpu(),
            )
            for picture, one, of in zip(pictures, chosen, features, strict=True)
        ]

    def _chosen(self, found: Candidates, record: Record) -> Candidates:
        """Boxes without an extent are none; the best of the others by the rule."""
        if not all(bool(torch.isfinite(one).all()) for one in (found.boxes, found.scores)):
            raise DataError(f"{self.proposer.name} found boxes or scores that are not finite", key=record.key)
        there = (found.boxes[:, 2:] > found.boxes[:, :2]).all(1).nonzero()[:, 0]
        classes = found.labels.argmax(1) if found.labels is not None else torch.zeros_like(found.scores).long()
        rows: Int[Tensor, "R"] = there[self.selection.choose(found.boxes[there], found.scores[there], classes[there])]
        return Candidates(
            found.boxes[rows],
            found.scores[rows],
            None if found.labels is None else found.labels[rows],
            None if found.features is None else found.features[rows],
        )

    def _pooled(self, pictures: Sequence[Picture], chosen: Sequence[Candidates]) -> list[Float[Tensor, "R F"]]:
        assert self.backbone is not None
        squares, shares = letterbox(pictures, self.backbone.side, self.backbone.device)
        maps = self.backbone(squares).float()
        return [
            pool_regions(one[None], to_square(found.boxes.to(one.device), share)[None], CELLS)[0].mean((2, 3))
            for one, share, found in zip(maps, shares, chosen, strict=True)
        ]

    def save(self, folder: Path) -> None:
        described = {
            "kind": KIND, PROPOSER: dict(self.proposer.described), "selection": self.selection.to_json(),
            BACKBONE: None if self.backbone is None else self.backbone.described,
        }  # fmt: skip
        write_detector(folder, described, self.network)

    @classmethod
    def from_request(cls, request: DetectorRequest) -> Detector:
        """Of `hf:NAME`, or of an ONNX file, which may be a backbone: then it is a grid."""
        path, values = Path(request.name.removeprefix(ONNX)), dict(request.settings)
        proposer: Proposer
        if request.name.startswith(HF):
            proposer = TransformersProposer.of(request.name.removeprefix(HF), request.weights)
        elif request.backbone is None and request.selection is None and is_backbone(path, values):
            if request.class_names:
                raise RecipeError(f"{path} gives a map of features and no classes; leave out --class-names")
            cells = values.pop("cells", None)
            return Grid(Backbone.from_onnx(path, values, request.report), cells)
        else:
            proposer = OnnxProposer.read(path, values, request.class_names, request.report)
        backbone = None if request.backbone is None else backbone_of(request.backbone, "--backbone")
        return cls(proposer, backbone, request.selection or EXACTLY_100)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> PooledDetector:
        source, weights = str(folder / WEIGHTS), read_weights(folder, described)

        def part(name: str) -> dict[str, Tensor]:
            return {key.partition(".")[2]: value for key, value in weights.items() if key.startswith(f"{name}.")}

        known: dict[str, type[OnnxProposer | TransformersProposer]] = {
            "onnx": OnnxProposer, "transformers": TransformersProposer,
        }  # fmt: skip
        proposer = known[described[PROPOSER]["library"]].from_described(described[PROPOSER])
        fill(proposer, part(PROPOSER), source)
        features = described[BACKBONE]
        backbone = None if features is None else Backbone.from_described(features, part(BACKBONE), source)
        return cls(proposer, backbone, Selection.from_json(described["selection"]))
