"""A small picture world for tests: a caption names the regions, then how many there are."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import torch

from diptych.core import Sample, Vocabulary
from diptych.systems.tden.model import Tden, TdenResolvedConfig
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig
from diptych.systems.xgpt.model import Xgpt, XgptResolvedConfig
from diptych.testing.case import KINDS
from diptych.testing.case import toy_regions as regions
from diptych.vision.detectors.selection import Selection

if TYPE_CHECKING:
    from diptych_world.detector.detector import StorybookDetector


__all__ = ["KINDS", "VOCABULARY", "config", "detector", "model", "regions", "sample", "tden", "xgpt"]

SIZES: dict[str, Any] = {
    "width": 32, "heads": 2, "ffn": 64, "max_regions": 5, "feature_size": 6, "classes": KINDS, "answers": 7,
    "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
VOCABULARY = Vocabulary(size=20, pad=0, unknown=1, cls=2, sep=3, mask=4)


def sample(seed: int, count: int | None = None) -> Sample:
    """Its text: one word a region (sorted: regions have no order), then how many there are, then [SEP]."""
    count = Random(seed).randint(1, 5) if count is None else count
    seen = regions(count, seed)
    assert seen.classes is not None
    words = sorted(5 + int(kind) for kind in seen.classes.argmax(1))
    return Sample(f"toy/{seed}", f"picture/{seed}", seen, torch.tensor([*words, 10 + count, VOCABULARY.sep]))


def detector(side: int = 32, select: Selection | None = None) -> StorybookDetector:
    """One that has learnt nothing, and finds something everywhere."""
    from diptych_world.detector.detector import StorybookDetector
    from diptych_world.detector.network import DetectorConfig, SmallDetector

    torch.manual_seed(0)
    shape = DetectorConfig(("dog", "bird"), side=side, feature_size=16, widths=(8, 8, 8))
    return StorybookDetector(SmallDetector(shape), select or Selection(most=4, least=2))


def config(**changes: Any) -> UnifiedVLPResolvedConfig:
    return UnifiedVLPResolvedConfig(vocabulary=VOCABULARY, **{**SIZES, "layers": 2, "positions": 24, **changes})


def model(*heads: str, seed: int = 0, std: float = 0.2, **changes: Any) -> UnifiedVLP:
    """Untrained, with weights large enough that every input matters."""
    torch.manual_seed(seed)
    return UnifiedVLP(config(init_std=std, **changes), heads or ("word",)).eval()


def tden(*heads: str, seed: int = 0, std: float = 0.2, vocabulary_of: Vocabulary = VOCABULARY, **changes: Any) -> Tden:
    """The same of TDEN: four small stacks, or the fewer of its other structures."""
    layers = {"object_layers": 2, "sentence_layers": 2, "cross_layers": 2, "decoder_layers": 2}
    structure = changes.get("structure", "decoupled")
    if structure != "decoupled":
        layers["decoder_layers"] = 0
    if structure == "single-stream":
        layers |= {"object_layers": 0, "sentence_layers": 0}
    torch.manual_seed(seed)
    sizes = SIZES | layers | {"positions": 16, "similarity_width": 16, "init_std": std} | changes
    config = TdenResolvedConfig(vocabulary=vocabulary_of, **sizes)
    return Tden(config, heads or ("word", "region_class", "similarity")).eval()


def xgpt(*heads: str, seed: int = 0, std: float = 0.2, **changes: Any) -> Xgpt:
    """The same of XGPT."""
    torch.manual_seed(seed)
    config = XgptResolvedConfig(
        vocabulary=VOCABULARY, **{**SIZES, "layers": 2, "positions": 12, "init_std": std, **changes}
    )
    return Xgpt(config, heads or ("word", "region_feature")).eval()
