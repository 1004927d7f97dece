"""VL-BERT (Su et al., ICLR 2020)."""

from pathlib import Path

from diptych.systems.system import Importer, System
from diptych.systems.vl_bert.checkpoint import import_vl_bert, start_network, start_vl_bert
from diptych.systems.vl_bert.model import VLBert, VLBertConfig, VLBertResolvedConfig
from diptych.systems.vl_bert.objectives import VLBertObjectives
from diptych.systems.vl_bert.presets import RECIPES
from diptych.vision.detectors.selection import Selection

SYSTEM = System(
    name="vl-bert",
    title="VL-BERT",
    paper="1908.08530",
    config=VLBertConfig,
    resolved=VLBertResolvedConfig,
    model=VLBert,
    selection=Selection(most=100, least=10, score=0.5),
    objectives=VLBertObjectives,
    recipes=RECIPES,
    tables=Path(__file__).with_name("paper.toml"),
    start=start_vl_bert,
    start_network=start_network,
    importer=Importer(
        read=import_vl_bert,
        selection="10 to 100 by score over 0.5",
        lowercase=True,
        key_prefixes=("vlbert.",),
    ),
)
