"""One file per system; beside them what they are made of.

`MODELS` is the whole registry: the name of a system -> its shape, its config, its model.
"""

from dataclasses import dataclass

from diptych.models.heads import HEADS, HeadSizes, make_heads
from diptych.models.image_bert.model import ImageBert, ImageBertConfig, ImageBertResolvedConfig
from diptych.models.system import ModelConfig, ResolvedConfig, SystemModel
from diptych.models.tden.model import Tden, TdenConfig, TdenResolvedConfig
from diptych.models.unified_vlp.model import UnifiedVLP, UnifiedVLPConfig, UnifiedVLPResolvedConfig
from diptych.models.vl_bert.model import VLBert, VLBertConfig, VLBertResolvedConfig
from diptych.models.xgpt.model import Xgpt, XgptConfig, XgptResolvedConfig


@dataclass(frozen=True)
class System:
    shape: type[ModelConfig]
    config: type[ResolvedConfig]
    model: type[SystemModel]


MODELS: dict[str, System] = {
    "image-bert": System(ImageBertConfig, ImageBertResolvedConfig, ImageBert),
    "tden": System(TdenConfig, TdenResolvedConfig, Tden),
    "unified-vlp": System(UnifiedVLPConfig, UnifiedVLPResolvedConfig, UnifiedVLP),
    "vl-bert": System(VLBertConfig, VLBertResolvedConfig, VLBert),
    "xgpt": System(XgptConfig, XgptResolvedConfig, Xgpt),
}

__all__ = [
    "HEADS",
    "MODELS",
    "HeadSizes",
    "ImageBert",
    "ImageBertConfig",
    "ImageBertResolvedConfig",
    "ModelConfig",
    "ResolvedConfig",
    "System",
    "SystemModel",
    "Tden",
    "TdenConfig",
    "TdenResolvedConfig",
    "UnifiedVLP",
    "UnifiedVLPConfig",
    "UnifiedVLPResolvedConfig",
    "VLBert",
    "VLBertConfig",
    "VLBertResolvedConfig",
    "Xgpt",
    "XgptConfig",
    "XgptResolvedConfig",
    "make_heads",
]
