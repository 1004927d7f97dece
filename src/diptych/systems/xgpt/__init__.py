"""XGPT (Xia et al., 2020)."""

from pathlib import Path

from diptych.systems.system import System
from diptych.systems.xgpt.checkpoint import start_xgpt
from diptych.systems.xgpt.model import Xgpt, XgptConfig, XgptResolvedConfig
from diptych.systems.xgpt.objectives import XgptObjectives
from diptych.systems.xgpt.presets import RECIPES
from diptych.vision.detectors.selection import EXACTLY_100

SYSTEM = System(
    name="xgpt",
    title="XGPT",
    paper="2003.01473",
    config=XgptConfig,
    resolved=XgptResolvedConfig,
    model=Xgpt,
    selection=EXACTLY_100,
    objectives=XgptObjectives,
    recipes=RECIPES,
    start=start_xgpt,
    tables=Path(__file__).with_name("paper.toml"),
)
