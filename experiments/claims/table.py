"""All claims of the five papers, in the order of docs/claims.md."""

from __future__ import annotations

from experiments.claims import image_bert, tden, unified_vlp, vl_bert, xgpt
from experiments.claims.claim import Claim

CLAIMS: tuple[Claim, ...] = tuple(
    claim for paper in (unified_vlp, vl_bert, image_bert, xgpt, tden) for claim in paper.CLAIMS
)
