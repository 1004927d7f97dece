"""Diptych: vision-language pre-training, five systems in one frame. Pictures on one panel, words on the other.

model = diptych.load("my-model")
print(model.caption("photo.jpg"))
print(model.ask("photo.jpg", "what colour is the kite?"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.serving import Prediction, Predictor, load

__version__ = "0.1.0"
__all__ = ["Prediction", "Predictor", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: `diptych --help` need not wait for torch."""
    if name in __all__:
        from diptych import serving

        return getattr(serving, name)
    raise AttributeError(f"module 'diptych' has no attribute {name!r}")
