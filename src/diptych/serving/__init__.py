"""Apply models: `load` and `Predictor`, search, the HTTP service, export, the Hugging Face hub."""

from typing import TYPE_CHECKING, Any

from diptych.serving.predictor import Predictor, load
from diptych.tasks.interface import Prediction
from diptych.tasks.nlvr import Verdict
from diptych.tasks.referring import FoundRegion
from diptych.tasks.vcr import ChoiceScores

if TYPE_CHECKING:
    from diptych.serving.search import Hit, Searched

__all__ = ["ChoiceScores", "FoundRegion", "Hit", "Prediction", "Predictor", "Searched", "Verdict", "load"]


def __getattr__(name: str) -> Any:
    """Import search when it is first used: its dependencies would slow down captioning."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from diptych.serving import search

    return getattr(search, name)
