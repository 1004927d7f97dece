"""All caption scores of a set of pictures, as pycocoevalcap names and scales them.

Fractions: BLEU-1..4, ROUGE-L, METEOR and SPICE from 0 to 1, CIDEr from 0 to 10. Papers print each times 100.
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
    """What each picture adds to the scores, for the bootstrap: see metrics/bootstrap.py."""

    keys: tuple[str, ...]
    bleu: NDArray[np.float64]  # (pictures, 9), see bleu_counts
    rouge: NDArray[np.float64]  # (pictures,)
    cider: NDArray[np.float64]  # (pictures,)

    def scores(self) -> dict[str, float]:
        orders = bleu_scores(self.bleu.sum(axis=0))
        scores = {f"BLEU-{order}": float(score) for order, score in enumerate(orders, start=1)}
        return scores | {"ROUGE-L": float(self.rouge.mean()), "CIDEr": float(self.cider.mean())}


def caption_items(predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> CaptionItems:
    """Scores every picture of `references`, so a prediction must be there for each."""
    _check(predictions, references)
    written, truths = _tokenised(predictions, references)
    return CaptionItems(
        keys=tuple(references),
        bleu=np.stack([bleu_counts(written[key], truths[key]) for key in references]),
        rouge=np.array([rouge_l(written[key], truths[key]) for key in references]),
        cider=np.array(list(cider_scores(written, truths).values())),
    )


def caption_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], extra_metrics: Sequence[str] = ()
) -> dict[str, float]:
    """{"BLEU-1": ..., ..., "ROUGE-L": ..., "CIDEr": ...}; `extra_metrics` may name METEOR and SPICE, which need Java.

    Asked for one that cannot run here, it raises RecipeError before any work; `unavailable(name)` tells beforehand.
    """
    for name in extra_metrics:
        unavailable(name, required=True)
    return caption_items(predictions, references).scores() | java_scores(predictions, references, extra_metrics)


def java_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], names: Sequence[str]
) -> dict[str, float]:
    """METEOR and SPICE alone. Asked for one that cannot run here, it raises RecipeError before any work."""
    for name in names:
        unavailable(name, required=True)
    return {name: java_score(name, *_tokenised(predictions, references)) for name in names}


def _tokenised(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Tokens], dict[str, list[Tokens]]]:
    written: dict[str, Tokens] = {key: tokens_of(predictions[key]) for key in references}
    return written, {key: [tokens_of(caption) for caption in captions] for key, captions in references.items()}


def _check(predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not references:
        raise DataError("no reference captions, so nothing to score")
    for key, captions in references.items():
        if isinstance(captions, str) or not captions:
            raise DataError("wanted a list of one or more reference captions", key=key)
    missing, unknown = [key for key in references if key not in predictions], set(predictions) - set(references)
    if missing or unknown:
        raise DataError(
            f"{len(missing)} of {len(references)} pictures have no predicted caption and {len(unknown)} predictions no "
            "reference; narrow both to the same pictures",
            key=(missing or sorted(unknown))[0],
        )
