"""TDEN (Li et al., AAAI 2021)."""

from diptych.systems.system import BOTTOM_UP, BOTTOM_UP_CAFFE, Importer, System
from diptych.systems.tden.checkpoint import import_tden, start_tden
from diptych.systems.tden.model import Tden, TdenConfig, TdenResolvedConfig
from diptych.systems.tden.objectives import TdenObjectives
from diptych.systems.tden.paper import TDEN
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
    objectives=TdenObjectives,
    recipes=RECIPES,
    tables=TDEN,
    start=start_tden,
    importer=Importer(
        read=import_tden,
        extractor=BOTTOM_UP,
        selection="the best 50 by score",
        lowercase=True,
        detector=BOTTOM_UP_CAFFE,
    ),
)
