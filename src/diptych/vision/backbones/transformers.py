"""The networks for pictures of transformers' models: a name on the hub, or a folder that `save_pretrained` wrote."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.extras import requires_extra
from diptych.vision.backbones.opened import DEVIATION, MEAN, SIDE, OpenedNetwork, Reading, Three, as_map

FILES = "config.json, preprocessor_config.json and model.safetensors"
POOLERS = ("pooler", "head")  # of the whole picture, which a map does without


class _LastMap(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._resizes = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters

    def forward(self, pixels: Tensor) -> Tensor:
        resized = {"interpolate_pos_encoding": True} if self._resizes else {}
        found = cast(Tensor, self.model(pixel_values=pixels, **resized).last_hidden_state)
        if found.ndim == 4:
            return found
        patch = getattr(self.model.config, "patch_size", None)
        return as_map(found, (pixels.shape[-1] // patch) ** 2 if isinstance(patch, int) else None)


def opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> OpenedNetwork:
    """`weights`: a folder with the files of `name`."""
    with requires_extra(f"hf/{name}", "transformers"):
        from transformers import AutoConfig, AutoImageProcessor, AutoModel
    source, revision = source_of(name, weights)
    with downloading(f"hf/{name}", way_out(name)):
        whole = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        config = getattr(whole, "vision_config", whole)
        if pretrained or weights is not None:
            model, loaded = AutoModel.from_pretrained(
                source, revision=revision, config=config, dtype=torch.float32, output_loading_info=True,
                trust_remote_code=False,
            )  # fmt: skip
            all_there(model, loaded, source, POOLERS)
        else:
            model = AutoModel.from_config(config)
        try:
            seen = AutoImageProcessor.from_pretrained(source, revision=revision).to_dict()
        except (OSError, ValueError):  # it has no file of it
            seen = {}
    size = side or _side(config, seen)
    mean, deviation = (
        cast(Three, tuple(seen.get(key) or usual)) for key, usual in (("image_mean", MEAN), ("image_std", DEVIATION))
    )
    return OpenedNetwork(_LastMap(model.eval()), Reading(size, mean, deviation), config.to_dict())


def built(described: Mapping[str, Any]) -> nn.Module:
    with requires_extra("a backbone of transformers", "transformers"):
        from transformers import AutoConfig, AutoModel
    return _LastMap(AutoModel.from_config(AutoConfig.for_model(**described["config"])).eval())


def source_of(name: str, folder: Path | None) -> tuple[str, str | None]:
    """Where it is read from, and which commit of it."""
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise CheckpointError(f"{folder} has no config.json; wanted a folder with {FILES}")
        return str(folder), None
    named, _, revision = name.partition("@")
    if named.count("/") != 1 and not Path(named).is_dir():
        raise RecipeError(f"{name!r} is no name on the hub; wanted USER/MODEL, perhaps with @COMMIT, or a folder")
    return named, revision or None


def way_out(name: str) -> str:
    return (
        f"copy {FILES} of https://huggingface.co/{name.partition('@')[0]} into a folder where there is a network, and "
        "give the folder with --weights"
    )


def all_there(model: Any, loaded: Mapping[str, Any], source: str, spared: tuple[str, ...] = ()) -> None:
    """Refuse weights that lack some of the network's. `spared`: parts that are not used; what they lack is zero, so
    that the same file is always the same network."""
    missing = sorted(loaded["missing_keys"])
    for name in missing:
        if not set(spared) & set(name.split(".")):
            raise CheckpointError(f"{source} is of another network: it lacks {name}; copy all of its files again")
        with torch.no_grad():
            model.state_dict()[name].zero_()


def _side(config: Any, seen: Mapping[str, Any]) -> int:
    size = seen.get("crop_size") or seen.get("size") or {}
    of_files = size.get("height") or size.get("shortest_edge") if isinstance(size, Mapping) else size
    own = getattr(config, "image_size", None)
    return int(own if isinstance(own, int) else of_files or SIDE)
