"""Features made elsewhere, and small data of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.journeys.conftest import tiny

SIZES = {"model.max_regions": 8, "model.positions": 40, "data.max_words": 16}


def given(path: Path, seed: int = 0, **changes: object) -> None:
    drawn = np.random.default_rng(seed)
    arrays = {"features": drawn.random((5, 12), np.float32), "classes": drawn.random((5, 3), np.float32),
              "boxes": np.array([[0, 0, 80, 80]] * 5), "width": 160, "height": 160,
              "scores": np.linspace(0.1, 0.9, 5)} | changes  # fmt: skip
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})  # type: ignore[arg-type]


def small(command: list[str]) -> list[str]:
    """With sizes that take seconds. A fine-tuned model has those of its start."""
    steps = {"training.steps": 4, "training.validate_every": 4, "training.checkpoint_every": 4, "data.max_words": 16}
    if command[0] == "pretrain":
        return [*command, *tiny(**(SIZES | steps))]
    if command[0] == "finetune":
        return [*command, *(word for key, value in steps.items() for word in ("--set", f"{key}={value}"))]
    return command
