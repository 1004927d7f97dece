"""Classifiers of torchvision, such as `resnet18`, cut after the feature map before their last pooling layer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models import get_model, get_model_weights, list_models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.weight_files import read_weights
from diptych.vision.backbones.opened import SIDE, OpenedNetwork
from diptych.vision.detectors.weights import fill

# GoogLeNet's weights were trained with a different mean and deviation. With transform_input, the network converts
# images that are normalised with ImageNet's values.
BUILDING = {"googlenet": {"init_weights": False, "aux_logits": False, "transform_input": True}}


class _LastMap(nn.Module):
    """torchvision's feature extractor, but it returns the feature map (B, F, h, w) instead of a dict with one entry."""

    def __init__(self, extractor: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, pixels: Tensor) -> Tensor:
        return cast(Tensor, self.extractor(pixels)["map"])


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    """Open a classifier by its torchvision name.

    Raises RecipeError for unknown names, and CheckpointError for unreadable weights.
    """
    trunk = _trunk(name)
    if weights is not None or pretrained:
        tensors = downloaded(name) if weights is None else read_weights(weights)
        needed = {f"extractor.{key}": value for key, value in tensors.items()}
        needed = {key: value for key, value in needed.items() if key in trunk.state_dict()}
        fill(trunk, needed, name if weights is None else str(weights))
    return OpenedNetwork(trunk, side or SIDE)


def built(described: Mapping[str, Any]) -> nn.Module:
    """Build the network from its saved description, with random weights."""
    return _trunk(described["backbone"])


def _trunk(name: str) -> nn.Module:
    known = list_models(module=models)
    if name not in known:
        raise RecipeError(
            f"torchvision has no backbone {name!r}; {nearest(name, known)}; for other libraries, start the name "
            "with timm/, open_clip/ or hf/"
        )
    model = get_model(name, weights=None, **BUILDING.get(name, {}))
    nodes = get_graph_node_names(model)[1]
    pooling = [node for node in nodes if "avgpool" in node or "avg_pool" in node]
    if not pooling or nodes.index(pooling[-1]) == 0:
        raise RecipeError(f"{name} has no feature map before a pooling layer; use a ResNet, or timm/NAME")
    before = nodes[nodes.index(pooling[-1]) - 1]
    return _LastMap(create_feature_extractor(model.eval(), {before: "map"}))


def downloaded(name: str) -> dict[str, Tensor]:
    """Return torchvision's default weights of the network `name`, downloaded once to torch's cache.

    Raises CheckpointError.
    """
    weights = cast(Any, get_model_weights(name)).DEFAULT
    file = str(weights.url).rpartition("/")[2]
    remedy = (
        f"download {weights.url} on a machine with a network, and pass {file} with --weights, or put it in "
        f"{torch.hub.get_dir()}/checkpoints"
    )
    with downloading(f"the weights of {name}", remedy):
        return cast(dict[str, Tensor], weights.get_state_dict(progress=False, check_hash=True))
