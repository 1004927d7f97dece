"""Base classes for settings of objectives, which a recipe saves. Their method `schedule` makes the objectives."""

from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from diptych.core import BIDIRECTIONAL, Objective, Vocabulary
from diptych.core.shares import AnswerForm, Share, Source
from diptych.objectives.masked_language import MaskedLanguage
from diptych.objectives.per_pair import SummedByPair
from diptych.objectives.schedule import Schedule
from diptych.objectives.updates import OneForward
from diptych.objectives.words import Scheme
from diptych.runtime.configs import derive

K = TypeVar("K", bound="Objectives")
SCHEMES: dict[Source, Scheme] = {"paper": (1.0, 0.0, 0.0), "official": (0.8, 0.1, 0.1)}


class Objectives(BaseModel):
    """Base class of objective settings; `kind` names the subclass in a saved recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    kind: str
    without_classes: ClassVar[str] = ""
    """Setting that switches off the prediction of region classes, such as region_classes=0."""
    improves: ClassVar[bool] = False
    """Whether these objectives need a trained model, and cannot start from random weights."""

    @property
    def needs_text(self) -> bool:
        """True if an objective reads texts without images, from data.text."""
        return False

    @property
    def answer_form(self) -> AnswerForm:
        """The loss of answers: "binary" (a sigmoid per answer) or "softmax" (over all answers)."""
        return "binary"

    @property
    def reads_pairs(self) -> bool:
        """True if retrieval encodes an image and a text together; False if it encodes them separately."""
        return False

    @property
    def texts_equal_by(self) -> Literal["papers", "content"]:
        """Whether copies of a right text or image count as wrong in retrieval ("papers") or as right ("content")."""
        return "content"

    @property
    def of_pictures(self) -> list[str]:
        """Names of the objectives on images that alternate, each with its own batches.

        If there are any, texts without images need a separate stage of training.
        """
        return []

    def without_pixels(self: K) -> K:
        """Return the settings for a model that reads stored features. Objectives on pixels are switched off."""
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        raise NotImplementedError


class MaskedWords(Objectives):
    """Base class of settings with masked language modelling in both directions, as in BERT."""

    rate: Share = 0.15
    """Share of the words that are hidden."""
    chosen_words: Literal["chance", "share"] = "share"
    """chance: each word is hidden with probability `rate`, at least 1 of a batch; share: a fixed number of each text's
    words, at least 1."""

    def masked_words(self, vocabulary: Vocabulary, **more: Any) -> MaskedLanguage:
        """Return the objective. `more`: its other fields."""
        chance = self.chosen_words == "chance"
        return MaskedLanguage(
            vocabulary, self.rate, at_least=0 if chance else 1, attention=((BIDIRECTIONAL, 1.0),), hides_end=False,
            by_chance=chance, **more,
        )  # fmt: skip


class SeenClasses(Objectives):
    """Base class of settings with an optional classification of regions from pixels (`SeenRegionClass`)."""

    seen_classes: NonNegativeFloat = 0.0
    """Weight of the classification of regions directly from pixels (model.network); 0: off."""

    def without_pixels(self: K) -> K:
        return derive(self, seen_classes=0.0)


LossPer = Literal["item", "pair"]


def per(unit: LossPer, objective: Objective) -> Objective:
    """Return the objective, with its loss averaged over targets ("item") or over pairs ("pair")."""
    return SummedByPair(objective) if unit == "pair" else objective


def weighed(*objectives: tuple[Objective, float]) -> Schedule:
    """Return a schedule with one forward pass per step and weighted losses. Objectives with weight 0 are left out."""
    used = [(objective, weight) for objective, weight in objectives if weight]
    weights = {objective.name: weight for objective, weight in used}
    return Schedule(((OneForward(tuple(objective for objective, _ in used), weights), 1.0),))
