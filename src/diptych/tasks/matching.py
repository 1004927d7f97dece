"""Image-text retrieval by pairs: find the picture that a text describes, and the texts that describe a picture.

The model reads a picture and a text together and its head "match" scores the pair, so a gallery takes a pass a pair.
Models that make a vector of each by itself search by `two_towers`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.core import Batch, Record, Sample, collate
from diptych.data.store.tokens import Tokens
from diptych.metrics.retrieval import RECALLS, rank_of
from diptych.runtime.devices import predicting
from diptych.runtime.errors import RecipeError
from diptych.tasks.gallery import FLUSH_EVERY, Cells, RetrievalGallery, Table, not_asked, open_table, pairs, put

FIRST = 10  # of what was found, in the predictions
AT = (1, 5, 10)


@dataclass(frozen=True)
class CaptionTask:
    """What both ways of retrieval read: a picture with each of its captions that says something."""

    tokens: Tokens
    max_words: int = 20
    # Captions that are not trained on, by key: the vocabulary knows none of their words.
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
        """The picture with its own captions."""
        return [
            Sample(key=f"{record.key}#{number}", picture=record.key, regions=record.regions, text=self.text(caption))
            for number, caption in enumerate(record.captions)
            if caption.strip()
        ]

    def text(self, caption: str) -> Int[Tensor, "T"]:
        vocabulary = self.tokens.vocabulary
        return torch.tensor([*self.tokens.encode(caption)[: self.max_words], vocabulary.sep])


@dataclass(frozen=True)
class Retrieval(CaptionTask):
    """One training sample a caption; the questions are all pairs of a gallery, which `rank` asks."""

    max_regions: int | None = None

    def queries(self, record: Record) -> list[Sample]:
        return self.pairs(record)

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """How well each text goes with its picture."""
        scores = match_scores(model, batch).tolist()
        return [{"key": key, "score": score} for key, score in zip(batch.keys, scores, strict=True)]

    def rank(self, model: nn.Module, records: Sequence[Record]) -> list[dict[str, Any]]:
        """All captions against all pictures of the records: small galleries, as validation has them."""
        gallery = RetrievalGallery.of(records)
        table = open_table(gallery, None, "")
        self.fill(model, gallery, table, everything(gallery))
        return rankings(gallery, table)

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """R@1, R@5 and R@10 both ways, times 100, and `recall`, the mean of the six."""
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
        """Score these cells of the table; those that have a score keep it. `progress` is told of each more pair."""
        left = not_asked(table, cells)
        if progress is not None:
            progress(sum(map(len, cells)) - sum(map(len, left)))
        texts = [self.text(caption.text) for caption in gallery.captions]
        waiting = pairs(left, np.array([len(text) for text in texts]))
        was_training, number = model.training, 0
        model.eval()
        try:
            while chosen := list(islice(waiting, batch_size)):
                samples = [self._sample(gallery, row, texts[column]) for row, column in chosen]
                with predicting(model, len(samples)):
                    scores = match_scores(model, _placed(samples, model))
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
        record = gallery.records[row]
        regions = record.regions
        if regions is not None and self.max_regions is not None:
            regions = regions.first(self.max_regions)
        return Sample(key=record.key, picture=record.key, regions=regions, text=text)


def everything(gallery: RetrievalGallery) -> list[NDArray[np.int64]]:
    """All cells."""
    captions = np.arange(len(gallery.captions))
    return [captions] * len(gallery.keys)


def match_scores(model: Any, batch: Batch) -> Float[Tensor, "B"]:
    """How well each text goes with its picture: log-odds."""
    if not can_match(model):
        raise RecipeError(
            f"the model has no head 'match' to tell which text belongs to which picture (it has "
            f"{', '.join(sorted(model.heads)) or 'none'}); teach it: diptych finetune retrieval --model MODEL, or "
            "pre-train with image-text matching"
        )
    scores: Tensor = model.heads["match"](model(batch.for_head("match"))).float()
    return scores


def can_match(model: Any) -> bool:
    return "match" in model.heads


def rankings(
    gallery: RetrievalGallery,
    table: Table,
    pictures: Sequence[int] | None = None,
    captions: Sequence[int] | None = None,
    among: tuple[Cells, Cells] | None = None,
) -> list[dict[str, Any]]:
    """What was found for each query (all, or those named), with the rank of the first right answer, from 0.

    `among`: for each picture the captions, and for each caption the pictures, that a shortlist has left.
    """
    owners, found = gallery.owners, []
    for row in range(len(gallery.keys)) if pictures is None else pictures:
        scores = _kept(np.asarray(table[row]), None if among is None else among[0][row])
        first = [gallery.captions[at].key for at in _best(scores)]
        rank = rank_of(scores, owners == row)
        found.append(
            {"key": gallery.keys[row], "asks": "captions", "rank": rank, "first": first, "picture": gallery.keys[row]}
        )
    for column in range(len(gallery.captions)) if captions is None else captions:
        caption = gallery.captions[column]
        scores = _kept(np.asarray(table[:, column]), None if among is None else among[1][column])
        first = [gallery.keys[at] for at in _best(scores)]
        rank = rank_of(scores, np.arange(len(scores)) == caption.picture)
        query = {"picture": gallery.keys[caption.picture], "caption": caption.text}
        found.append({"key": caption.key, "asks": "pictures", "rank": rank, "first": first, **query})
    return found


def _kept(scores: NDArray[np.float32], among: NDArray[np.int64] | None) -> NDArray[np.float64]:
    if among is None:
        return scores.astype(np.float64)
    kept = np.full(len(scores), -np.inf)
    kept[among] = scores[among]
    return kept


def _best(scores: NDArray[np.float64]) -> list[int]:
    order = np.argsort(-scores, kind="stable")[:FIRST]
    return [int(at) for at in order if scores[at] > -np.inf]


def _placed(samples: Sequence[Sample], model: nn.Module) -> Batch:
    return collate(samples).to(next(model.parameters()).device)
