"""Backbones of timm, with its own loading, on squares of the side that they were trained with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from diptych.runtime.downloads import downloading, first_line
from diptych.runtime.errors import CheckpointError, RecipeError, nearest
from diptych.runtime.extras import requires_extra
from diptych.runtime.weight_files import read_weights
from diptych.vision.backbones.opened import OpenedNetwork, Reading, Three, as_map


class _LastMap(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        found = cast(Tensor, self.model.forward_features(pixels))
        if found.ndim == 4:
            return found if found.shape[1] == self.model.num_features else found.permute(0, 3, 1, 2)
        return as_map(found, found.shape[1] - int(getattr(self.model, "num_prefix_tokens", 0)))


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    with requires_extra(f"timm/{name}", "timm"):
        import timm
    if not timm.is_model(name):
        raise RecipeError(f"timm has no backbone {name!r}; {nearest(name, timm.list_models(pretrained=True))}")
    try:
        cfg: Any = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        known = timm.list_pretrained(f"{name.partition('.')[0]}*")
        raise RecipeError(f"timm knows no weights {name!r}; {nearest(name, known)}") from error
    size = side or int(cfg.input_size[-1])
    if weights is not None:
        tensors = read_weights(weights)
        for head in (cfg.classifier,) if isinstance(cfg.classifier, str) else cfg.classifier or ():
            for part in ("weight", "bias"):
                tensors.pop(f"{head}.{part}", None)
        try:
            model = _created(timm, name, size, True, {"state_dict": tensors, "classifier": None})
        except (RuntimeError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"{weights} is of another network than timm/{name} ({first_line(error)}); give a file of its weights"
            ) from error
    elif pretrained:
        way_out = f"fetch {_address(cfg)} where there is a network, and give the file with --weights"
        with downloading(f"the weights of timm/{name}", way_out):
            model = _created(timm, name, size, True, None)
    else:
        model = _created(timm, name, size, False, None)
    return OpenedNetwork(
        _LastMap(model.eval()), Reading(size, cast(Three, tuple(cfg.mean)), cast(Three, tuple(cfg.std)))
    )


def built(described: Mapping[str, Any]) -> nn.Module:
    return opened(described["backbone"].removeprefix("timm/"), described["side"], None, False).trunk


def _created(timm: Any, name: str, side: int, pretrained: bool, overlay: dict[str, Any] | None) -> Any:
    settings = {"pretrained": pretrained, "num_classes": 0, "pretrained_cfg_overlay": overlay}
    try:
        return timm.create_model(name, img_size=side, **settings)
    except TypeError as error:  # convolutions take any size, and no argument for it
        if "img_size" not in str(error):
            raise
        return timm.create_model(name, **settings)


def _address(cfg: Any) -> str:
    if cfg.hf_hub_id:
        return f"model.safetensors of https://huggingface.co/{cfg.hf_hub_id}"
    return str(cfg.url or "its weights")
