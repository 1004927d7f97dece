"""Image-text retrieval, both ways: by pairs that a model reads together (`matching`), or by vectors (`two_towers`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from diptych.core import Objective, Record, Task, Vocabulary
from diptych.objectives import MatchGroups, OneForward, Schedule
from diptych.objectives.settings import Objectives
from diptych.tasks.gallery import RetrievalGallery
from diptych.tasks.interface import (
    Form,
    InterfaceWords,
    Message,
    PageView,
    TaskAnswer,
    TaskInterface,
    TaskRequest,
    Text,
)
from diptych.tasks.matching import Retrieval, can_match
from diptych.tasks.recall import recall_scores
from diptych.tasks.scores import Baselines, Scores
from diptych.tasks.spec import Predicted, Prediction, Small, TaskOptions, TaskScoring, TaskSpec, TaskTraining
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
    return recall_scores(RetrievalGallery.of(records), predictions)


class RetrievalObjectives(Objectives):
    """Weights of the three losses of ImageBERT's section 4.4; 0: off. Table 4 finds binary alone the best."""

    kind: Literal["retrieval"] = "retrieval"
    """Kind of objectives."""
    binary: NonNegativeFloat = 1.0
    """Weight of the binary loss of each pair; 0: off."""
    choice: NonNegativeFloat = 0.0
    """Weight of the multi-class loss over the pairs of a group; 0: off."""
    triplet: NonNegativeFloat = 0.0
    """Weight of the triplet loss against the hardest wrong pair; 0: off."""
    margin: NonNegativeFloat = 0.2
    """Margin of the triplet loss; the paper's formula has none."""
    on: Literal["probability", "log-odds"] = "probability"
    """What the margin is a margin of."""
    pairs: Annotated[int, Field(ge=2)] = 4
    """Pairs of a group: a right one, and the others wrong."""
    negatives: Literal["captions", "pictures", "both"] = "both"
    """What a wrong pair gets from another: captions, pictures, or half of each."""

    @model_validator(mode="after")
    def _some(self) -> RetrievalObjectives:
        if not (self.binary or self.choice or self.triplet):
            raise ValueError("binary, choice and triplet all have weight 0, so there is nothing to train")
        return self

    @property
    def reads_pairs(self) -> bool:
        return True

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        weights = {form: getattr(self, form) for form in ("binary", "choice", "triplet")}
        losses = tuple(
            MatchGroups(form, self.pairs, self.negatives, self.margin, self.on)  # type: ignore[arg-type]
            for form, weight in weights.items()
            if weight
        )
        named: tuple[Objective, ...] = losses
        return Schedule(((OneForward(named, {one.name: weights[one.form] for one in losses}), 1.0),))


class SearchRequest(TaskRequest):
    query: Annotated[Text, Form("What to look for", "a red kite over a beach")] = Field(
        description="Such as 'a red kite over a beach'."
    )
    most: Annotated[int, Form("How many to show")] = Field(default=12, ge=1, le=100, description="How many to show.")


class SearchHit(TaskAnswer):
    score: float


class SearchHits(Message):
    """The best first. `picture` of a service is an id for /v1/pictures/{id}, never a path."""

    query: str
    hits: tuple[SearchHit, ...]
    searched: int = Field(description="Pictures that could be read.")
    refused: int = Field(description="Pictures that could not.")


def has_towers(model: Any) -> bool:
    """Whether it has learnt to make vectors of pictures and of texts that can be compared."""
    return isinstance(model, TwoTowers) and "similarity" in getattr(model, "heads", ())


def can_search(model: Any) -> bool:
    """Whether it has learnt to match pictures and texts."""
    return can_match(model) or has_towers(model)


def _view(_: SearchRequest, told: SearchHits) -> PageView:
    unread = f"; {told.refused} could not be read" if told.refused else ""
    return PageView(
        summary=told.query,
        notes=(f"{len(told.hits)} of {told.searched} pictures, the best first{unread}",),
        sheet=tuple((hit.picture, hit.score) for hit in told.hits),
    )


RETRIEVAL = TaskSpec(
    name="retrieval",
    title="Retrieval",
    learns="search",
    field="captions",
    head="match",
    build=_build,
    training=TaskTraining(
        watched="image retrieval R@1",
        objectives=(RetrievalObjectives,),
        small=Small(RetrievalObjectives(), batch=16),  # a pair comes with its wrong ones
        validation=_small_gallery,
    ),
    scoring=TaskScoring(
        noun="queries",
        key="rank",
        shown=("image retrieval R@1", "image retrieval R@10", "text retrieval R@1", "text retrieval R@10"),
        score=_score,
        collect=_numbered,
        gallery=True,
    ),
    interface=TaskInterface(
        verb="search",
        help="Rank the service's pictures by how well they fit a text.",
        words=InterfaceWords(
            does="ranks pictures by how well they fit a text",
            example='print(model.search("a red kite", "photos").hits[0].picture)',
        ),
        request=SearchRequest,
        response=SearchHits,
        view=_view,
        offered=lambda model, _: can_search(model),
    ),
    learnt=lambda model: can_match(model) or isinstance(model, TwoTowers),
)
