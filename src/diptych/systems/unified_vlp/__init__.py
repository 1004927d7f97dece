"""Unified VLP (Zhou et al., AAAI 2020)."""

from pathlib import Path

from diptych.systems.bert import start_from_bert
from diptych.systems.system import Importer, System
from diptych.systems.unified_vlp.checkpoint import import_unified_vlp, start_fc7
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPConfig, UnifiedVLPResolvedConfig
from diptych.systems.unified_vlp.objectives import UnifiedVLPObjectives
from diptych.systems.unified_vlp.presets import RECIPES
from diptych.vision.detectors.selection import EXACTLY_100

SYSTEM = System(
    name="unified-vlp",
    title="Unified VLP",
    paper="1909.11059",
    config=UnifiedVLPConfig,
    resolved=UnifiedVLPResolvedConfig,
    model=UnifiedVLP,
    selection=EXACTLY_100,
    objectives=UnifiedVLPObjectives,
    recipes=RECIPES,
    tables=Path(__file__).with_name("paper.toml"),
    start=start_from_bert,
    start_network=start_fc7,
    importer=Importer(
        read=import_unified_vlp,
        extractor="Detectron ResNeXt-101 FPN on Visual Genome (Unified VLP's authors)",
        selection="exactly 100 by score",
        lowercase=False,
        detector="Detectron ResNeXt",
    ),
)
