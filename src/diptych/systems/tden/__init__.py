"""TDEN (Li et al., AAAI 2021)."""

from pathlib import Path

from diptych.systems.system import Importer, System
from diptych.systems.tden.checkpoint import import_tden, start_tden
from diptych.systems.tden.model import Tden, TdenConfig, TdenResolvedConfig
from diptych.systems.tden.objectives import TdenObjectives
from diptych.systems.tden.presets import RECIPES
from diptych.vision.detectors.selection import Selection

SYSTEM = System(
    name="tden",
    title="TDEN",
    paper="2101.11562",
    config=TdenConfig,
    resolved=TdenResolvedConfig,
    model=Tden,
    selection=Selection(most=100, score=0.2),
    selections={"tden-official": Selection(most=50, score=0.2)},
    objectives=TdenObjectives,
    recipes=RECIPES,
    tables=Path(__file__).with_name("paper.toml"),
    start=start_tden,
    depth="sentence_layers",
    importer=Importer(
        read=import_tden,
        selection="the best 50 by score",
        lowercase=True,
        key_prefixes=("v_predictor.", "similarity_predictor.", "visual_embed."),
    ),
)
