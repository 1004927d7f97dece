"""Image-text retrieval, both ways: by pairs that a model reads together (`matching`), or by vectors (`two_towers`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from diptych.core import Record, Task
from diptych.tasks.gallery import Gallery
from diptych.tasks.matching import Retrieval, can_match
from diptych.tasks.recall import recall_scores
from diptych.tasks.scores import Baselines, Scores
from diptych.tasks.spec import Predicted, Prediction, TaskOptions, TaskSpec
from diptych.tasks.two_towers import TwoTowerRetrieval, TwoTowers, score_vectors

VALIDATION_GALLERY = 64  # pictures with a caption each: 4,096 pairs, which a small model reads in seconds


def _build(given: TaskOptions) -> Task:
    if given.reads_pairs:
        return Retrieval(given.tokens, given.max_words, given.max_regions)
    return TwoTowerRetrieval(given.tokens, given.max_words)


def _small_gallery(task: Task, records: list[Record]) -> tuple[Task, list[Record]]:
    if not isinstance(task, Retrieval):
        return task, records
    captioned = [record for record in records if record.captions][:VALIDATION_GALLERY]
    return task, [replace(record, captions=record.captions[:1]) for record in captioned]


def _numbered(predictions: Iterable[Prediction]) -> Predicted:
    """Whole, in their order: a picture and its captions may share a key."""
    return {str(number): prediction for number, prediction in enumerate(predictions)}


def _score(found: Predicted, records: Sequence[Record], _: Baselines | None) -> Scores:
    """Beside what chance would find, which follows from the size of the gallery."""
    predictions: list[Mapping[str, Any]] = list(found.values())
    if any("vector" in prediction for prediction in predictions):
        return score_vectors(predictions)
    return recall_scores(Gallery.of(records), predictions)


RETRIEVAL = TaskSpec(
    name="retrieval",
    title="Retrieval",
    learns="search",
    noun="queries",
    field="captions",
    key="rank",
    head="match",
    watched="image retrieval R@1",
    shown=("image retrieval R@1", "image retrieval R@10", "text retrieval R@1", "text retrieval R@10"),
    build=_build,
    score=_score,
    collect=_numbered,
    learnt=lambda model: can_match(model) or isinstance(model, TwoTowers),
    validation=_small_gallery,
    gallery=True,
)
