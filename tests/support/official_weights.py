"""A checkpoint in the layout of the authors."""

from diptych.systems.unified_vlp.model import UnifiedVLP
from tests.support import toy

OFFICIAL = {"region_embedding": "official", "geometry": "official", "box_norm": "official"}


def official(*heads: str, **changes: object) -> UnifiedVLP:
    sizes = {**OFFICIAL, "hidden_regions": "official", "width": 64, "heads": 1, **changes}
    return toy.model(*(heads or ("word", "pooler", "answer")), **sizes)
