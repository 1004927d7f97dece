"""Backbones of the package timm, which loads them. By default, the input has the side used in training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.extras import requires_extra
from diptych.runtime.weight_files import read_weights
from diptych.vision.backbones.opened import OpenedNetwork, Three, as_map, reading_weights


class _LastMap(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        cells = cast(Tensor, self.model.forward_features(pixels))
        if cells.ndim == 4:
            return cells if cells.shape[1] == self.model.num_features else cells.permute(0, 3, 1, 2)
        return as_map(cells, cells.shape[1] - int(getattr(self.model, "num_prefix_tokens", 0)))


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    """Open a model by its timm name.

    Raises RecipeError for unknown names, and CheckpointError for unreadable weights.
    """
    with requires_extra(f"timm/{name}", "timm"):
        import timm
    if not timm.is_model(name):
        raise RecipeError(f"timm has no backbone {name!r}; {nearest(name, timm.list_models(pretrained=True))}")
    try:
        cfg: Any = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        known = timm.list_pretrained(f"{name.partition('.')[0]}*")
        raise RecipeError(f"timm has no weights {name!r}; {nearest(name, known)}") from error
    size, overlay = side or int(cfg.input_size[-1]), None
    if weights is not None:
        heads = (cfg.classifier,) if isinstance(cfg.classifier, str) else cfg.classifier or ()
        unused = {f"{head}.{part}" for head in heads for part in ("weight", "bias")}
        tensors = {key: value for key, value in read_weights(weights).items() if key not in unused}
        overlay = {"state_dict": tensors, "classifier": None}
    if pretrained or weights is not None:
        with reading_weights(f"timm/{name}", weights, _address(cfg)):
            model = _created(timm, name, size, True, overlay)
    else:
        model = _created(timm, name, size, False, None)
    return OpenedNetwork(_LastMap(model.eval()), size, cast(Three, tuple(cfg.mean)), cast(Three, tuple(cfg.std)))


def built(described: Mapping[str, Any]) -> nn.Module:
    """Build the network from its saved description, with random weights."""
    return opened(described["backbone"].removeprefix("timm/"), described["side"], None, False).trunk


def _created(timm: Any, name: str, side: int, pretrained: bool, overlay: dict[str, Any] | None) -> Any:
    settings = {"pretrained": pretrained, "num_classes": 0, "pretrained_cfg_overlay": overlay}
    try:
        return timm.create_model(name, img_size=side, **settings)
    except TypeError as error:  # convolutional networks accept any size, but not the argument img_size
        if "img_size" not in str(error):
            raise
        return timm.create_model(name, **settings)


def _address(cfg: Any) -> str:
    hub = cfg.hf_hub_id
    return f"model.safetensors of https://huggingface.co/{hub}" if hub else str(cfg.url or "its weights")
