"""UNITER's entry in the table of systems."""

from diptych.plugin import Importer, Selection, System, bert
from uniter.checkpoint import import_uniter
from uniter.model import Uniter, UniterConfig, UniterResolvedConfig
from uniter.objectives import UniterObjectives
from uniter.presets import RECIPES

SYSTEM = System(
    name="uniter",
    title="UNITER",
    paper="1909.11740",
    config=UniterConfig,
    resolved=UniterResolvedConfig,
    model=Uniter,
    selection=Selection(most=100, least=10, score=0.2),  # conf_th, max_bb, min_bb of all configurations
    objectives=UniterObjectives,
    recipes=RECIPES,
    start=bert.start_from_bert,
    importer=Importer(
        read=import_uniter,
        selection="10 to 100 by score over 0.2",
        lowercase=False,
    ),
)
