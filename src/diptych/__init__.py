"""Diptych: train and use vision-language models. It has five published systems in one code base.

model = diptych.load("my-model")
print(model.caption("photo.jpg"))
print(model.ask("photo.jpg", "what colour is the dog?"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.api.dataset import Dataset
    from diptych.api.model import Model, load
    from diptych.api.results import Answer, Caption, ChosenAnswer, Explained, Found, Hits, Judgement
    from diptych.api.run import Run
    from diptych.api.scoring import compare, evaluate
    from diptych.api.training import finetune, pretrain, recipe, register
    from diptych.runtime.errors import (
        CheckpointError,
        DataError,
        DiptychError,
        RecipeError,
        Stopped,
        TrainingError,
        UnfamiliarWarning,
        UnreadWarning,
        UnsupportedError,
    )

__version__ = "0.1.0"
_PLACES = {
    "api.dataset": ("Dataset",),
    "api.model": ("Model", "load"),
    "api.results": ("Answer", "Caption", "ChosenAnswer", "Explained", "Found", "Hits", "Judgement"),
    "api.run": ("Run",),
    "api.scoring": ("compare", "evaluate"),
    "api.training": ("finetune", "pretrain", "recipe", "register"),
    "runtime.errors": ("CheckpointError", "DataError", "DiptychError", "RecipeError", "Stopped", "TrainingError",
                       "UnfamiliarWarning", "UnreadWarning", "UnsupportedError"),
}  # fmt: skip
__all__ = [
    "Answer", "Caption", "CheckpointError", "ChosenAnswer", "DataError", "Dataset", "DiptychError", "Explained",
    "Found", "Hits", "Judgement", "Model", "RecipeError", "Run", "Stopped", "TrainingError", "UnfamiliarWarning",
    "UnreadWarning", "UnsupportedError", "__version__", "compare", "evaluate", "finetune", "load", "pretrain", "recipe",
    "register",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `diptych --help` need not wait for torch."""
    for place, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"diptych.{place}"), name)
    raise AttributeError(f"module 'diptych' has no attribute {name!r}")
