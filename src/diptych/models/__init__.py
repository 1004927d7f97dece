"""Building blocks of models: layers, embeddings, heads, decoding, and the base classes of configs and models."""

from diptych.models.heads import HEADS, HeadSizes, make_heads
from diptych.models.system import ModelConfig, ResolvedConfig, SystemModel, as_bert

__all__ = ["HEADS", "HeadSizes", "ModelConfig", "ResolvedConfig", "SystemModel", "as_bert", "make_heads"]
