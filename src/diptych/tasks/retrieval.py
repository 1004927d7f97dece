"""Image-text retrieval in both directions, by scoring pairs (`matching`) or by vectors (`two_towers`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from diptych.core import Record, Task, Vocabulary
from diptych.objectives import MatchGroups, OneForward, Schedule
from diptych.objectives.settings import Objectives
from diptych.tasks import interface
from diptych.tasks.gallery import Equals, RetrievalGallery
from diptych.tasks.matching import Retrieval, can_match
from diptych.tasks.recall import recall_scores
from diptych.tasks.scores import Baselines, Scores
from diptych.tasks.spec import Predicted, Small, TaskOptions, TaskScoring, TaskSpec, TaskTraining
from diptych.tasks.two_towers import TwoTowerRetrieval, TwoTowers, score_vectors

FORMS: tuple[Literal["binary", "choice", "triplet"], ...] = ("binary", "choice", "triplet")
VALIDATION_GALLERY = 64  # number of images, with one caption each: 4,096 pairs, which a small model scores in seconds


def _build(given: TaskOptions) -> Task:
    if given.reads_pairs:
        return Retrieval(given.tokens, given.max_words, given.max_regions)
    return TwoTowerRetrieval(given.tokens, given.max_words)


def _small_gallery(task: Task, records: list[Record]) -> tuple[Task, list[Record]]:
    if not isinstance(task, Retrieval):
        return task, records
    captioned = [record for record in records if record.captions][:VALIDATION_GALLERY]
    return task, [replace(record, captions=record.captions[:1]) for record in captioned]


def _score(predicted: Predicted, records: Sequence[Record], _: Baselines | None) -> Scores:
    """Compute recall with its baseline, a random order of the gallery. Given baselines are ignored."""
    predictions: list[Mapping[str, Any]] = list(predicted.values())
    if any("vector" in prediction for prediction in predictions):
        return score_vectors(predictions, records)
    return recall_scores(RetrievalGallery.of(records), predictions)


class RetrievalObjectives(Objectives):
    """The three retrieval losses of ImageBERT (section 4.4). In its Table 4, the binary loss alone is best."""

    kind: Literal["retrieval"] = "retrieval"
    """Kind of objectives."""
    binary: NonNegativeFloat = 1.0
    """Weight of the binary loss of each pair; 0: off."""
    choice: NonNegativeFloat = 0.0
    """Weight of the multi-class loss over the pairs of a group; 0: off."""
    triplet: NonNegativeFloat = 0.0
    """Weight of the triplet loss against the hardest mismatched pair; 0: off."""
    margin: NonNegativeFloat = 0.2
    """Margin of the triplet loss; the paper's formula has none."""
    on: Literal["probability", "log-odds"] = "probability"
    """Score that the triplet loss compares with the margin."""
    pairs: Annotated[int, Field(ge=2)] = 4
    """Number of pairs in a group: one matching pair, the others mismatched."""
    negatives: Literal["captions", "pictures", "both"] = "both"
    """What mismatched pairs take from other pairs: captions, images, or half of each."""
    equal_texts: Equals = "papers"
    """How a copy of a right text or image is scored: as wrong (papers), or as right (content)."""

    @model_validator(mode="after")
    def _some(self) -> RetrievalObjectives:
        if not (self.binary or self.choice or self.triplet):
            raise ValueError("`binary`, `choice` and `triplet` are all 0, so nothing is trained; set one above 0")
        return self

    @property
    def texts_equal_by(self) -> Equals:
        return self.equal_texts

    @property
    def reads_pairs(self) -> bool:
        return True

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        losses = {
            MatchGroups(form, self.pairs, self.negatives, self.margin, self.on): getattr(self, form)
            for form in FORMS
            if getattr(self, form)
        }
        return Schedule(((OneForward(tuple(losses), {loss.name: weight for loss, weight in losses.items()}), 1.0),))


class SearchRequest(interface.TaskRequest):
    query: Annotated[interface.Text, interface.Form("What to look for", "a dog on a beach", argument="query")] = Field(
        description="Such as 'a dog on a beach'."
    )
    top_k: Annotated[int, interface.Form("How many to show"), Field(ge=1, le=100)] = 12
    """How many to show."""


class SearchHit(interface.TaskAnswer):
    score: float
    name: str | None = Field(default=None, description="In the service: the path below its folder of images.")


class SearchHits(interface.Message):
    """Retrieved images, best first. In the service, `picture` of a hit is an id for /v1/pictures/{id}, not a path."""

    query: str
    hits: tuple[SearchHit, ...]
    searched: int = Field(description="Number of images that could be read.")
    refused: int = Field(description="Number of images that could not be read.")


def has_towers(model: Any) -> bool:
    """Return True if a model has learnt to embed images and texts in a shared space."""
    return isinstance(model, TwoTowers) and "similarity" in getattr(model, "heads", ())


def can_search(model: Any) -> bool:
    """Return True if a model has learnt to match images and texts."""
    return can_match(model) or has_towers(model)


def _view(_: SearchRequest, message: SearchHits) -> interface.PageView:
    unread = f"; {message.refused} could not be read" if message.refused else ""
    return interface.PageView(
        summary=message.query,
        notes=(f"{len(message.hits)} of {message.searched} images, the best first{unread}",),
        sheet=tuple((hit.picture, hit.score, hit.name) for hit in message.hits),
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
        small=Small(RetrievalObjectives(equal_texts="content"), batch=16),  # `batch` counts matching pairs
        validation=_small_gallery,
    ),
    scoring=TaskScoring(
        noun="queries",
        key="rank",
        shown=("image retrieval R@1", "image retrieval R@10", "text retrieval R@1", "text retrieval R@10"),
        score=_score,
        # Predictions are numbered, because an image and a caption may have the same key.
        collect=lambda predictions: {str(number): prediction for number, prediction in enumerate(predictions)},
        gallery=True,
    ),
    interface=interface.TaskInterface(
        verb="search",
        help="Rank the service's images by how well they fit a text.",
        words=interface.InterfaceWords(
            does="ranks images by how well they fit a text",
            example='print(model.search("a dog on a beach", "photos")[0].picture)',
        ),
        request=SearchRequest,
        response=SearchHits,
        view=_view,
        offered=lambda model, _: can_search(model),
    ),
    learnt=lambda model: can_match(model) or isinstance(model, TwoTowers),
)
