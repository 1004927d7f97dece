"""Models that search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from diptych.data.store.tokens import Tokens
from diptych.inference.predictor import Predictor
from diptych.runs.folder import Architecture, ModelFolder
from diptych.systems import SYSTEMS

if TYPE_CHECKING:
    from diptych_world.detector.detector import StorybookDetector


TOKENS = Tokens.train(["a red kite over a beach"], 60)


def opened(
    folder: Path, detector: StorybookDetector, system: str = "image-bert", head: str = "match", **changes: Any
) -> Predictor:
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"width": 32, "heads": 2, "ffn": 64, "positions": 24, "init_std": 0.3, **changes}
    sizes |= {"object_layers": 1, "sentence_layers": 1, "cross_layers": 1} if system == "tden" else {"layers": 1}
    config = SYSTEMS[system].resolved(
        vocabulary=TOKENS.vocabulary, feature_size=16, classes=len(detector.contract.class_names), **sizes
    )
    architecture = Architecture(system=system, config=config, heads=(head, "word"))
    model = architecture.build().eval()
    detector.save(folder / "detector")
    return Predictor(
        ModelFolder(folder / "model", model, architecture, TOKENS, detector.contract, detector=folder / "detector")
    )
