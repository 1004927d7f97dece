"""Image encoders of the package open_clip, as backbones."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.extras import requires_extra
from diptych.vision.backbones.opened import WITH_OPTION, OpenedNetwork, Three, reading_weights


class _LastMap(nn.Module):
    def __init__(self, visual: Any) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, pixels: Tensor) -> Tensor:
        outputs = self.visual.forward_intermediates(
            pixels, indices=1, normalize_intermediates=True, intermediates_only=True, output_fmt="NCHW"
        )
        return cast(Tensor, outputs["image_intermediates"][-1])


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    """Open a model ARCHITECTURE/WEIGHTS.

    Raises RecipeError for unknown names, and CheckpointError for unreadable weights.
    """
    model, model_config = loaded(name, side, weights, pretrained)
    visual = model.visual
    size = int(visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size)
    mean, deviation = (cast(Three, tuple(visual.preprocess_cfg[key])) for key in ("mean", "std"))
    config = {key: model_config[key] for key in ("embed_dim", "vision_cfg")}
    config["quick_gelu"] = bool(model_config.get("quick_gelu", False))
    return OpenedNetwork(_LastMap(visual.float().eval()), size, mean, deviation, config)


def loaded(
    name: str, side: int | None, weights: Path | None, pretrained: bool, option: str = WITH_OPTION
) -> tuple[Any, Mapping[str, Any]]:
    """Return a model ARCHITECTURE/WEIGHTS as open_clip loads it, and its configuration. Raises as `opened`."""
    with requires_extra(f"open_clip/{name}", "open-clip"):
        import open_clip
    architecture, _, tag = name.partition("/")
    model_config = open_clip.get_model_config(architecture)
    if model_config is None:
        raise RecipeError(f"open_clip has no {architecture!r}; {nearest(architecture, open_clip.list_models())}")
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if (tag and tag not in tags) or (pretrained and weights is None and not tag):
        raise RecipeError(
            f"open_clip/{name} names no weights; pass open_clip/{architecture}/WEIGHTS with one of: {', '.join(tags)}"
        )
    normal = open_clip.get_pretrained_cfg(architecture, tag) if tag else {}
    preprocess = {key: normal[key] for key in ("mean", "std") if key in normal}
    settings = {"force_image_size": side, "pretrained_text": False, "force_preprocess_cfg": preprocess}
    if not pretrained and weights is None:
        return _created(open_clip, architecture, pretrained=None, **settings), model_config
    whose, source = (name, tag) if weights is None else (architecture, str(weights))
    with reading_weights(f"open_clip/{whose}", weights, _address(normal), option):
        return _created(open_clip, architecture, pretrained=source, **settings), model_config


def built(described: Mapping[str, Any]) -> nn.Module:
    """Build the network from its saved description, with random weights."""
    with requires_extra("a backbone of open_clip", "open-clip"):
        from open_clip.model import _build_vision_tower
    config = described["config"]
    shape = {**config["vision_cfg"], "image_size": described["side"], "timm_model_pretrained": False}
    return _LastMap(_build_vision_tower(config["embed_dim"], shape, config["quick_gelu"]).eval())


def _created(open_clip: Any, architecture: str, **settings: Any) -> Any:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model = open_clip.create_model(architecture, **settings)
    if any("QuickGELU mismatch" in str(one.message) for one in raised):
        plain = architecture.removesuffix("-quickgelu")
        other = plain if architecture != plain else f"{plain}-quickgelu"
        raise RecipeError(
            f"these weights of {architecture} were trained with a different activation (GELU or QuickGELU); use "
            f"open_clip/{other}/..."
        )
    return model


def _address(normal: Mapping[str, Any]) -> str:
    hub = str(normal.get("hf_hub", "")).rstrip("/")
    return f"open_clip_model.safetensors of https://huggingface.co/{hub}" if hub else str(normal.get("url"))
