"""One file per system; beside them what they are made of.

`MODELS` is the whole registry: name -> (config, model).
"""

from pydantic import BaseModel
from torch import nn

from diptych.models.heads import HEADS, HeadSizes, make_heads
from diptych.models.unified_vlp import UnifiedVLP, UnifiedVLPConfig, UnifiedVLPShape

MODELS: dict[str, tuple[type[BaseModel], type[nn.Module]]] = {"unified_vlp": (UnifiedVLPConfig, UnifiedVLP)}

__all__ = ["HEADS", "MODELS", "HeadSizes", "UnifiedVLP", "UnifiedVLPConfig", "UnifiedVLPShape", "make_heads"]
