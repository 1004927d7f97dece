"""A plain grid: regions are the cells of a backbone's last map, and no detector was trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d
from torchvision import models
from torchvision.models import get_model, get_model_weights, list_models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
from torchvision.transforms.functional import normalize

from diptych.core import FeatureContract, Record, Regions
from diptych.errors import CheckpointError, RecipeError, nearest
from diptych.extras import wanted
from diptych.vision.detector import Picture
from diptych.vision.letterbox import letterbox
from diptych.vision.weights import fill, fingerprint, write_detector

KIND = "grid"
# ImageNet's; every backbone of torchvision and most of timm's were trained with them.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# GoogLeNet's released weights want other means and deviations, into which it turns the usual ones by itself.
BUILDING: dict[str, dict[str, bool]] = {
    "googlenet": {"init_weights": False, "aux_logits": False, "transform_input": True}
}


class Backbone(nn.Module):
    """A classifier of torchvision (`resnet18`) or timm (`timm/vit_tiny_patch16_224`) up to its last map."""

    def __init__(self, name: str, side: int) -> None:
        super().__init__()
        self.name, self.side = name, side
        self.trunk = _timm(name.removeprefix("timm/"), side) if name.startswith("timm/") else _torchvision(name)

    def forward(self, squares: Tensor) -> Float[Tensor, "B F h w"]:
        return cast(Tensor, self.trunk(normalize(squares.float() / 255, MEAN, DEVIATION)))

    @cached_property
    @torch.no_grad()
    def width(self) -> int:
        """F, the channels of the last map."""
        return int(self(torch.zeros(1, 3, self.side, self.side, dtype=torch.uint8)).shape[1])


class Grid:
    """`cells` by `cells` regions of equal size; those outside a picture that is not square are left out."""

    needs_pictures = True

    def __init__(self, backbone: Backbone, cells: int) -> None:
        self.backbone, self.cells = backbone.eval(), cells

    @classmethod
    def of(cls, name: str = "resnet18", side: int = 224, cells: int = 7, pretrained: bool = False) -> Grid:
        backbone = Backbone(name, side)
        if pretrained:
            fill(backbone.trunk, _downloaded(name, backbone), name)
        return cls(backbone, cells)

    @cached_property
    def contract(self) -> FeatureContract:
        return FeatureContract(
            extractor=f"grid:{self.backbone.name} at {self.backbone.side} pixels",
            weights=fingerprint(self.backbone),
            feature_size=self.backbone.width,
            selection=f"all of {self.cells} x {self.cells} cells",
            whole=True,
        )

    @torch.no_grad()
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if not pictures:
            return []
        device = next(self.backbone.parameters()).device
        squares, shares = letterbox(pictures, self.backbone.side, device)
        maps = adaptive_avg_pool2d(self.backbone(squares), self.cells).float()
        return [self._one(*one) for one in zip(pictures, maps, shares, strict=True)]

    def _one(self, picture: Picture, cells: Float[Tensor, "F n n"], share: Float[Tensor, "2"]) -> Regions:
        columns, rows = (share * self.cells).ceil().int().tolist()
        left, top = torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")
        corners = torch.stack([left, top, left + 1, top + 1], -1).reshape(-1, 4) / self.cells
        boxes = (corners / share.cpu().repeat(2)).clamp(0, 1)
        features = cells[:, :rows, :columns].flatten(1).T.cpu()
        return Regions(
            boxes=boxes,
            scores=torch.ones(len(boxes)),
            size=(picture.shape[2], picture.shape[1]),
            features=features,
            whole=features.mean(0),
        )

    def save(self, folder: Path) -> None:
        described = {"kind": KIND, "backbone": self.backbone.name, "side": self.backbone.side, "cells": self.cells}
        write_detector(folder, described, self.backbone)

    @classmethod
    def from_folder(cls, described: dict[str, Any], weights: dict[str, Tensor], source: str) -> Grid:
        backbone = fill(Backbone(described["backbone"], described["side"]), weights, source)
        return cls(backbone, described["cells"])


class _LastMap(nn.Module):
    """The one output of torchvision's extractor, as a tensor (B, F, h, w)."""

    def __init__(self, extractor: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, pixels: Tensor) -> Tensor:
        return cast(Tensor, self.extractor(pixels)["map"])


def _torchvision(name: str) -> nn.Module:
    known = list_models(module=models)
    if name not in known:
        raise RecipeError(f"torchvision has no backbone {name!r}; {nearest(name, known)}; timm's begin with timm/")
    model = get_model(name, weights=None, **BUILDING.get(name, {}))
    pooling = [node for node in get_graph_node_names(model)[1] if "avgpool" in node or "avg_pool" in node]
    nodes = get_graph_node_names(model)[1]
    if not pooling or nodes.index(pooling[-1]) == 0:
        raise RecipeError(f"{name} has no map of cells before a pooling layer; take a ResNet, or a timm/ backbone")
    before = nodes[nodes.index(pooling[-1]) - 1]
    return _LastMap(create_feature_extractor(model.eval(), {before: "map"}))


class _TimmMap(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        found = cast(Tensor, self.model.forward_features(pixels))
        if found.ndim == 4:
            return found if found.shape[1] == self.model.num_features else found.permute(0, 3, 1, 2)
        # A transformer: the class token and registers come first.
        cells = found[:, int(getattr(self.model, "num_prefix_tokens", 0)) :]
        batch, count, width = cells.shape
        return cells.transpose(1, 2).reshape(batch, width, int(count**0.5), -1)


def _timm(name: str, side: int) -> nn.Module:
    with wanted(f"timm/{name}", "timm"):
        import timm
    if not timm.is_model(name):
        raise RecipeError(f"timm has no backbone {name!r}; {nearest(name, timm.list_models())}")
    try:
        model = timm.create_model(name, pretrained=False, num_classes=0, img_size=side)
    except TypeError:  # convolutions take any size, and no argument for it
        model = timm.create_model(name, pretrained=False, num_classes=0)
    return _TimmMap(model)


def _downloaded(name: str, backbone: Backbone) -> dict[str, Tensor]:
    """The weights that torchvision or timm offers for it, under the trunk's names."""
    try:
        if name.startswith("timm/"):
            import timm

            model = timm.create_model(name.removeprefix("timm/"), pretrained=True, num_classes=0)
            return {f"model.{key}": value for key, value in model.state_dict().items()}
        weights = cast(Any, get_model_weights(name)).DEFAULT
        tensors = weights.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"cannot download the weights of {name} ({error}); without a network give a saved detector folder"
        ) from error
    wanted = backbone.trunk.state_dict().keys()
    return {f"extractor.{key}": value for key, value in tensors.items() if f"extractor.{key}" in wanted}
