"""One file per system; beside them what they are made of.

`MODELS` is the whole registry: the name of a system -> its shape, its config, its model.
"""

from dataclasses import dataclass

from diptych.models.heads import HEADS, HeadSizes, make_heads
from diptych.models.image_bert import ImageBert, ImageBertConfig, ImageBertShape
from diptych.models.system import Config, Shape, SystemModel
from diptych.models.tden import Tden, TdenConfig, TdenShape
from diptych.models.unified_vlp import UnifiedVLP, UnifiedVLPConfig, UnifiedVLPShape
from diptych.models.vl_bert import VLBert, VLBertConfig, VLBertShape
from diptych.models.xgpt import Xgpt, XgptConfig, XgptShape


@dataclass(frozen=True)
class System:
    shape: type[Shape]
    config: type[Config]
    model: type[SystemModel]


MODELS: dict[str, System] = {
    "image-bert": System(ImageBertShape, ImageBertConfig, ImageBert),
    "tden": System(TdenShape, TdenConfig, Tden),
    "unified-vlp": System(UnifiedVLPShape, UnifiedVLPConfig, UnifiedVLP),
    "vl-bert": System(VLBertShape, VLBertConfig, VLBert),
    "xgpt": System(XgptShape, XgptConfig, Xgpt),
}

__all__ = [
    "HEADS",
    "MODELS",
    "Config",
    "HeadSizes",
    "ImageBert",
    "ImageBertConfig",
    "ImageBertShape",
    "Shape",
    "System",
    "SystemModel",
    "Tden",
    "TdenConfig",
    "TdenShape",
    "UnifiedVLP",
    "UnifiedVLPConfig",
    "UnifiedVLPShape",
    "VLBert",
    "VLBertConfig",
    "VLBertShape",
    "Xgpt",
    "XgptConfig",
    "XgptShape",
    "make_heads",
]
