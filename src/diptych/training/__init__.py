"""One loop for every model, the detector included."""

from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.training.step import Batches, Updates
from diptych.training.trainer import Result, Validate, Validation, train

__all__ = ["Batches", "OptimizerConfig", "Result", "TrainingConfig", "Updates", "Validate", "Validation", "train"]
