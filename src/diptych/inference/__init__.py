"""Apply models: `Predictor`, search, the HTTP service, export, the Hugging Face hub."""

from typing import TYPE_CHECKING, Any

from diptych.inference.predictor import Predictor

if TYPE_CHECKING:
    from diptych.inference.search import Hit, Searched

__all__ = ["Hit", "Predictor", "Searched"]


def __getattr__(name: str) -> Any:
    """Import `search` on first use, because importing its dependencies would delay other uses, such as captioning."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from diptych.inference import search

    return getattr(search, name)
