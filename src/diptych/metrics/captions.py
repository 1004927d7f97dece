"""All scores of captions, with the names and scales of pycocoevalcap.

BLEU-1..4, ROUGE-L, METEOR and SPICE are from 0 to 1, CIDEr is from 0 to 10. Papers print each score times 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.bleu import bleu_counts, bleu_scores
from diptych.metrics.cider import cider_scores
from diptych.metrics.java import java_score, unavailable
from diptych.metrics.rouge import rouge_l
from diptych.metrics.tokenise import Tokens, tokens_of
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class CaptionItems:
    """The contribution of each image to the scores, for the bootstrap in metrics/bootstrap.py."""

    keys: tuple[str, ...]
    bleu: NDArray[np.float64]  # (images, 9): the counts that `bleu_counts` returns
    rouge: NDArray[np.float64]  # (images,): ROUGE-L of each image
    cider: NDArray[np.float64]  # (images,): CIDEr of each image

    def scores(self) -> dict[str, float]:
        """Return the scores of the whole set: BLEU-1..4, ROUGE-L and CIDEr."""
        orders = bleu_scores(self.bleu.sum(axis=0))
        scores = {f"BLEU-{order}": float(score) for order, score in enumerate(orders, start=1)}
        return scores | {"ROUGE-L": float(self.rouge.mean()), "CIDEr": float(self.cider.mean())}


def caption_items(predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> CaptionItems:
    """Score the predicted caption of each image.

    `references`: key -> captions. Raises DataError if predictions and references have different images, or if an image
    has no reference.
    """
    written, truths = _tokenised(predictions, references)
    bleu = np.stack([bleu_counts(written[key], truths[key]) for key in references])
    rouge = np.array([rouge_l(written[key], truths[key]) for key in references])
    return CaptionItems(tuple(references), bleu, rouge, np.array(list(cider_scores(written, truths).values())))


def caption_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], extra_metrics: Sequence[str] = ()
) -> dict[str, float]:
    """Return {"BLEU-1": ..., ..., "ROUGE-L": ..., "CIDEr": ...}, and METEOR and SPICE if `extra_metrics` names them.

    METEOR and SPICE need Java. Raises RecipeError at the start if a requested score cannot run here (see
    `unavailable`), and DataError in the same cases as `caption_items`.
    """
    extra = java_scores(predictions, references, extra_metrics)
    return caption_items(predictions, references).scores() | extra


def java_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], names: Sequence[str]
) -> dict[str, float]:
    """Return the scores in `names`, which may be METEOR and SPICE.

    Raises RecipeError at the start if one of these scores cannot run here.
    """
    for name in names:
        unavailable(name, required=True)
    return {name: java_score(name, *_tokenised(predictions, references)) for name in names}


def _tokenised(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Tokens], dict[str, list[Tokens]]]:
    """Return the tokenised predictions and references. Raises DataError unless both have the same images."""
    if not references:
        raise DataError("found no reference captions, so nothing can be scored; pass some")
    for key, captions in references.items():
        if isinstance(captions, str) or not captions:
            raise DataError("expected a list of one or more reference captions", key=key)
    missing, unknown = [key for key in references if key not in predictions], set(predictions) - set(references)
    if missing or unknown:
        raise DataError(
            f"images without a predicted caption: {len(missing)} of {len(references)}; predictions without reference: "
            f"{len(unknown)}; use the same images in both",
            key=(missing or sorted(unknown))[0],
        )
    written: dict[str, Tokens] = {key: tokens_of(predictions[key]) for key in references}
    return written, {key: [tokens_of(caption) for caption in captions] for key, captions in references.items()}
