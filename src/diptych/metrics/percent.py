"""As papers print scores: VQA 71.9, BLEU-4 36.5, CIDEr 116.9."""

from collections.abc import Mapping


def percent(scores: Mapping[str, float]) -> dict[str, float]:
    """Times 100, every one; a CIDEr of 1.169 is printed as 116.9 though it is no share."""
    return {name: 100 * score for name, score in scores.items()}
