"""ImageBERT (Qi et al., 2020)."""

from pathlib import Path

from diptych.systems.bert import start_from_bert
from diptych.systems.image_bert.model import ImageBert, ImageBertConfig, ImageBertResolvedConfig
from diptych.systems.image_bert.objectives import ImageBertObjectives
from diptych.systems.image_bert.presets import RECIPES
from diptych.systems.system import System
from diptych.vision.detectors.selection import EXACTLY_100, Selection

SYSTEM = System(
    name="image-bert",
    title="ImageBERT",
    paper="2001.07966",
    config=ImageBertConfig,
    resolved=ImageBertResolvedConfig,
    model=ImageBert,
    selection=EXACTLY_100,
    selections={"image-bert-36": Selection(most=36, least=36)},
    objectives=ImageBertObjectives,
    recipes=RECIPES,
    tables=Path(__file__).with_name("paper.toml"),
    start=start_from_bert,
)
