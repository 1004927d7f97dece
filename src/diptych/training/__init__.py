"""Training: the loop, optimizers and checkpoints of all models, including detectors."""

from typing import TYPE_CHECKING, Any

from diptych.training.config import OptimizerConfig, TrainingConfig

if TYPE_CHECKING:
    from diptych.training.feeding import Batches, Updates
    from diptych.training.trainer import Result, Validate, Validation, train

__all__ = ["Batches", "OptimizerConfig", "Result", "TrainingConfig", "Updates", "Validate", "Validation", "train"]


def __getattr__(name: str) -> Any:
    """Import the training loop lazily, because recipes need only the settings."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from diptych.training import step, trainer

    return getattr(trainer if hasattr(trainer, name) else step, name)
