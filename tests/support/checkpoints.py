"""Models built from official checkpoints, or from files like them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from diptych.models.system import Imported, SystemModel
from diptych.models.weights import ImportReport, load_into

M = TypeVar("M", bound=SystemModel)


def load_checkpoint(
    model: type[M], read: Callable[..., Imported], path: Path, vocabulary_file: Path, **sizes: Any
) -> tuple[M, ImportReport]:
    """Build a model from an official checkpoint; `read` is the `Importer.read` of its system."""
    config, names, tensors, report = read(path, vocabulary_file, **sizes)
    made = model(config, names)
    return made, load_into(made, tensors, report)
