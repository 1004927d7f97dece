"""XGPT (Xia et al., 2020)."""

from diptych.systems.system import Presets, System
from diptych.systems.xgpt.model import Xgpt, XgptConfig, XgptResolvedConfig
from diptych.systems.xgpt.objectives import XgptObjectives
from diptych.systems.xgpt.paper import XGPT
from diptych.vision.detectors.selection import EXACTLY_100


def _recipes() -> Presets:
    from diptych.systems.xgpt.presets import MAKERS

    return MAKERS


SYSTEM = System(
    name="xgpt",
    title="XGPT",
    paper="2003.01473",
    config=XgptConfig,
    resolved=XgptResolvedConfig,
    model=Xgpt,
    selection=EXACTLY_100,
    objectives=XgptObjectives,
    recipes=_recipes,
    tables=XGPT,
)
