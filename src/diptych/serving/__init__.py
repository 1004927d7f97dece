"""From a picture and a model folder to words and decisions, without HTTP."""

from typing import TYPE_CHECKING, Any

from diptych.serving.deciding import Chosen, Found, Verdict
from diptych.serving.predictor import Prediction, Predictor, load

if TYPE_CHECKING:
    from diptych.serving.search import Hit, Searched

__all__ = ["Chosen", "Found", "Hit", "Prediction", "Predictor", "Searched", "Verdict", "load"]


def __getattr__(name: str) -> Any:
    """A search reads stores and tables, for which a caption need not wait."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from diptych.serving import search

    return getattr(search, name)
