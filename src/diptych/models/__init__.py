"""Parts of models: layers, embeddings, heads, and the base classes of a system's config and model."""

from diptych.models.heads import HEADS, HeadSizes, make_heads
from diptych.models.system import ModelConfig, ResolvedConfig, SystemModel, as_bert

__all__ = ["HEADS", "HeadSizes", "ModelConfig", "ResolvedConfig", "SystemModel", "as_bert", "make_heads"]
