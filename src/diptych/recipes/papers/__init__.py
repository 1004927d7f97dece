"""Every table of the five papers, row by row: what the paper reports, and what to type for it."""

from diptych.recipes.ledger import Paper
from diptych.recipes.papers.image_bert import IMAGE_BERT
from diptych.recipes.papers.tden import TDEN
from diptych.recipes.papers.unified_vlp import UNIFIED_VLP
from diptych.recipes.papers.vl_bert import VL_BERT
from diptych.recipes.papers.xgpt import XGPT

PAPERS: tuple[Paper, ...] = (UNIFIED_VLP, VL_BERT, IMAGE_BERT, XGPT, TDEN)

__all__ = ["PAPERS"]
