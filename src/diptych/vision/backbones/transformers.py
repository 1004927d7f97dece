"""Image encoders of the package `transformers`: a name on the hub, or a folder that `save_pretrained` wrote."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.extras import requires_extra
from diptych.vision.backbones.opened import DEVIATION, MEAN, SIDE, OpenedNetwork, Three, as_map

FILES = "config.json, preprocessor_config.json and model.safetensors"
POOLERS = ("pooler", "head")  # layers that compute a vector of the whole image; a feature map does not need them


class _LastMap(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._resizes = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters

    def forward(self, pixels: Tensor) -> Tensor:
        resized = {"interpolate_pos_encoding": True} if self._resizes else {}
        cells = cast(Tensor, self.model(pixel_values=pixels, **resized).last_hidden_state)
        if cells.ndim == 4:
            return cells
        patch = getattr(self.model.config, "patch_size", None)
        return as_map(cells, (pixels.shape[-1] // patch) ** 2 if isinstance(patch, int) else None)


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    """Open USER/MODEL[@COMMIT] from the hub, or from the folder `weights` with its files. Raises CheckpointError."""
    with requires_extra(f"hf/{name}", "transformers"):
        from transformers import AutoConfig, AutoImageProcessor, AutoModel
    source, revision = source_of(name, weights)
    with downloading(f"hf/{name}", remedy_of(name)):
        whole = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        config = getattr(whole, "vision_config", whole)
        if pretrained or weights is not None:
            model = load_whole(AutoModel, source, POOLERS, revision=revision, config=config)
        else:
            model = AutoModel.from_config(config)
        try:
            processing = AutoImageProcessor.from_pretrained(source, revision=revision).to_dict()
        except (OSError, ValueError):  # the model has no image processor file
            processing = {}
    mean, deviation = (processing.get("image_mean") or MEAN), (processing.get("image_std") or DEVIATION)
    size = side or _side(config, processing)
    return OpenedNetwork(
        _LastMap(model.eval()), size, cast(Three, tuple(mean)), cast(Three, tuple(deviation)), config.to_dict()
    )


def built(described: Mapping[str, Any]) -> nn.Module:
    """Build the network from its saved description, with random weights."""
    with requires_extra("a backbone of transformers", "transformers"):
        from transformers import AutoConfig, AutoModel
    return _LastMap(AutoModel.from_config(AutoConfig.for_model(**described["config"])).eval())


def source_of(name: str, folder: Path | None) -> tuple[str, str | None]:
    """Return the source of a model (a folder, or a name on the hub), and its commit or None.

    Raises RecipeError if the folder or name is not a model's.
    """
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise CheckpointError(f"{folder} has no config.json; pass a folder with {FILES}")
        return str(folder), None
    named, _, revision = name.partition("@")
    if named.count("/") != 1 and not Path(named).is_dir():
        raise RecipeError(f"{name!r} is not a model's name on the hub; pass USER/MODEL, USER/MODEL@COMMIT or a folder")
    return named, revision or None


def remedy_of(name: str) -> str:
    """Return the remedy to show if the hub cannot be reached."""
    return (
        f"download {FILES} of https://huggingface.co/{name.partition('@')[0]} on a machine with a network, and "
        "pass the folder with --weights"
    )


def load_whole(library: Any, source: str, unused: tuple[str, ...] = (), **options: Any) -> Any:
    """Load a model in float32. `library`: a class of transformers, such as AutoModel.

    Raises CheckpointError if weights are missing.

    Missing weights of the parts `unused` are set to 0, so that the same files always give the same network.
    """
    model, loaded = library.from_pretrained(
        source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, **options
    )
    for name in sorted(loaded["missing_keys"]):
        if not set(unused) & set(name.split(".")):
            raise CheckpointError(f"{source} lacks the weights {name}; pass a model with all weights")
        with torch.no_grad():
            model.state_dict()[name].zero_()
    return model


def _side(config: Any, processing: Mapping[str, Any]) -> int:
    size = processing.get("crop_size") or processing.get("size") or {}
    in_files = size.get("height") or size.get("shortest_edge") if isinstance(size, Mapping) else size
    own = getattr(config, "image_size", None)
    return int(own if isinstance(own, int) else in_files or SIDE)
