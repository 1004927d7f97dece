"""Image-text retrieval that scores pairs: rank images for a text, and texts for an image.

The model reads an image and a text together, and its head "match" scores the pair. A gallery takes one forward pass per
pair. Models that embed images and texts separately use `two_towers`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.core import Batch, Record, Sample, collate
from diptych.data.store.tokens import Tokens
from diptych.metrics.retrieval import RECALLS, rank_of
from diptych.runtime.devices import predicting
from diptych.runtime.errors import RecipeError
from diptych.tasks.gallery import (
    FLUSH_EVERY,
    Cells,
    Equals,
    RetrievalGallery,
    Table,
    missing_cells,
    open_table,
    pairs,
    put,
)
from diptych.tasks.run import encode

FIRST = 10  # number of results in a prediction, best first
AT = (1, 5, 10)
MAX_WORDS = 20  # maximum number of tokens of a caption


@dataclass(frozen=True)
class CaptionTask:
    """Base class of the two retrieval tasks. Its samples are pairs of an image and one of its captions."""

    tokens: Tokens
    max_words: int = MAX_WORDS
    # {key: caption that training left out, because all its words are out of vocabulary}.
    unknown: dict[str, str] = field(default_factory=dict, compare=False, kw_only=True)

    name = "retrieval"

    def samples(self, record: Record) -> list[Sample]:
        known: list[Sample] = []
        for sample in self.pairs(record):
            if self.tokens.knows(sample.text[:-1].tolist()):
                known.append(sample)
            else:
                self.unknown[sample.key] = record.captions[int(sample.key.rpartition("#")[2])]
        return known

    def pairs(self, record: Record) -> list[Sample]:
        """Return one sample per non-empty caption of the record."""
        return [
            Sample(f"{record.key}#{number}", record.key, record.regions, encode(self.tokens, caption, self.max_words))
            for number, caption in enumerate(record.captions)
            if caption.strip()
        ]


@dataclass(frozen=True)
class Retrieval(CaptionTask):
    """Retrieval with a model that reads image and text together. `rank` scores all pairs of a gallery."""

    max_regions: int | None = None

    def queries(self, record: Record) -> list[Sample]:
        return self.pairs(record)

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the match score of each pair."""
        scores = match_scores(model, batch).tolist()
        return [{"key": key, "score": score} for key, score in zip(batch.keys, scores, strict=True)]

    def rank(self, model: nn.Module, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Score every caption with every image of the records. Use it for small galleries, such as in validation."""
        gallery = RetrievalGallery.of(records)
        table = open_table(gallery, None, "")
        self.fill(model, gallery, table, everything(gallery))
        return rankings(gallery, table)

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return R@1, R@5 and R@10 (times 100) of image and text retrieval, and their mean as `recall`."""
        figures = {
            f"{name} R@{k}": 100 * float(np.mean([p["rank"] < k for p in predictions if p["asks"] == asks]))
            for asks, name in RECALLS.items()
            for k in AT
        }
        return figures | {"recall": sum(figures.values()) / len(figures)}

    def fill(
        self,
        model: nn.Module,
        gallery: RetrievalGallery,
        table: Table,
        cells: Cells,
        batch_size: int = 64,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Score the given cells of the table that have no score yet.

        `progress` is called after each batch with its number of pairs.
        """
        left = missing_cells(table, cells)
        if progress is not None:
            progress(sum(map(len, cells)) - sum(map(len, left)))
        texts = [encode(self.tokens, caption.text, self.max_words) for caption in gallery.captions]
        waiting = pairs(left, np.array([len(text) for text in texts]))
        was_training, number, device = model.training, 0, next(model.parameters()).device
        model.eval()
        try:
            while chosen := list(islice(waiting, batch_size)):
                samples = [self._sample(gallery, row, texts[column]) for row, column in chosen]
                with predicting(model, len(samples)):
                    scores = match_scores(model, collate(samples).to(device))
                rows, columns = np.array(chosen).T
                put(table, gallery, rows, columns, scores.float().cpu().numpy())
                number += 1
                if isinstance(table, np.memmap) and number % FLUSH_EVERY == 0:
                    table.flush()
                if progress is not None:
                    progress(len(chosen))
        finally:
            model.train(was_training)
            if isinstance(table, np.memmap):
                table.flush()

    def _sample(self, gallery: RetrievalGallery, row: int, text: Tensor) -> Sample:
        record = gallery.record(row)
        if record.regions is not None and self.max_regions is not None:
            record = replace(record, regions=record.regions.first(self.max_regions))
        return Sample(record.key, record.key, record.regions, text)


def everything(gallery: RetrievalGallery) -> list[NDArray[np.int64]]:
    """Return all cells: for each image the numbers of all captions."""
    captions = np.arange(len(gallery.captions))
    return [captions] * len(gallery.keys)


def match_scores(model: Any, batch: Batch) -> Float[Tensor, "B"]:
    """Return the match score (log-odds) of each pair. Raises RecipeError if the model has no head "match"."""
    if not can_match(model):
        raise RecipeError(
            f"the model has no head 'match' to score an image and a text with (its heads: "
            f"{', '.join(sorted(model.heads)) or 'none'}); train it: diptych finetune retrieval --model MODEL, or "
            "pre-train with image-text matching"
        )
    scores: Tensor = model.heads["match"](model(batch.for_head("match"))).float()
    return scores


def can_match(model: Any) -> bool:
    """Return True if a model has a head "match", which scores pairs."""
    return "match" in model.heads


def rankings(
    gallery: RetrievalGallery, table: Table, pictures: Sequence[int] | None = None,
    captions: Sequence[int] | None = None, among: tuple[Cells, Cells] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Rank the gallery for each query. In the results, `rank` is the position of the first right result, from 0.

    `pictures` and `captions` are the indices of the queries (None: all). `among`, from a shortlist, has the captions
    that are ranked for each image, and the images that are ranked for each caption.
    """
    pictures = range(len(gallery.keys)) if pictures is None else pictures
    captions = range(len(gallery.captions)) if captions is None else captions
    to_captions, to_pictures = among or (None, None)
    return [
        *(_captions_for(gallery, row, _kept(table[row], to_captions, row)) for row in pictures),
        *(_pictures_for(gallery, at, _kept(table[:, at], to_pictures, at)) for at in captions),
    ]


def _captions_for(gallery: RetrievalGallery, row: int, scores: NDArray[np.float64]) -> dict[str, Any]:
    key, right = gallery.keys[row], partial(gallery.right_captions, row)
    best = [gallery.captions[at] for at in _best(scores, right(gallery.equals))]
    first: dict[str, Any] = {"first": [caption.key for caption in best]}
    if any(caption.id for caption in best):
        first["first_ids"] = [caption.id for caption in best]
    return {"key": key, "asks": "captions", **_ranks(gallery, scores, right), **first, "picture": key}


def _pictures_for(gallery: RetrievalGallery, column: int, scores: NDArray[np.float64]) -> dict[str, Any]:
    caption, right = gallery.captions[column], partial(gallery.right_pictures, column)
    keys = [gallery.keys[at] for at in _best(scores, right(gallery.equals))]
    query = {"picture": gallery.keys[caption.picture], "caption": caption.text}
    if caption.id:
        query["caption_id"] = caption.id
    return {"key": caption.key, "asks": "pictures", **_ranks(gallery, scores, right), "first": keys, **query}


def _ranks(
    gallery: RetrievalGallery, scores: NDArray[np.float64], right: Callable[[Equals], NDArray[np.bool_]]
) -> dict[str, int]:
    """Return the `rank` of the first right result.

    If the other rule for copies (`Equals`) gives another rank, add it as `other_rank`.
    """
    others: dict[Equals, Equals] = {"papers": "content", "content": "papers"}
    rank, other = (rank_of(scores, right(equals)) for equals in (gallery.equals, others[gallery.equals]))
    return {"rank": rank} | ({"other_rank": other} if other != rank else {})


def _kept(scores: NDArray[np.float32], among: Cells | None, query: int) -> NDArray[np.float64]:
    """Return the scores of a query, with -inf for results that are not ranked for it."""
    every = np.asarray(scores).astype(np.float64)
    if among is None:
        return every
    kept = np.full(len(every), -np.inf)
    kept[among[query]] = every[among[query]]
    return kept


def _best(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> list[int]:
    """Return the first results in the order that `rank_of` counts: of equal scores, the wrong ones first."""
    order = np.lexsort((right, -scores))[:FIRST]
    return [int(at) for at in order if scores[at] > -np.inf]
