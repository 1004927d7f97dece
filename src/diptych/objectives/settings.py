"""Settings of training objectives, as a recipe saves them, and the schedule that they make."""

from typing import ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from diptych.core import Objective, Vocabulary
from diptych.core.shares import AnswerForm, Source
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
    """Setting that leaves out the classes of hidden regions, such as region_classes=0."""
    improves: ClassVar[bool] = False
    """Whether they train a model on, and never one with random weights."""

    @property
    def needs_text(self) -> bool:
        """True if an objective reads texts without images (data.text)."""
        return False

    @property
    def answer_form(self) -> AnswerForm:
        """The loss of answers: binary for each answer, or a softmax over all."""
        return "binary"

    @property
    def reads_pairs(self) -> bool:
        """True if retrieval encodes an image and a text together, not separately."""
        return False

    @property
    def texts_equal_by(self) -> Literal["papers", "content"]:
        """How retrieval scores copies of a right text or image: as wrong (papers), or as right (content)."""
        return "content"

    @property
    def of_pictures(self) -> list[str]:
        """Image tasks that take turns, each with its own batches.

        If there are any, text alone needs a separate stage.
        """
        return []

    def without_pixels(self: K) -> K:
        """The settings for a model that reads stored features: objectives over pixels are switched off."""
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        raise NotImplementedError


class SeenClasses(Objectives):
    """Settings with an optional classification of regions from pixels alone (SeenRegionClass)."""

    seen_classes: NonNegativeFloat = 0.0
    """Weight of the classification of regions from pixels alone (model.network); 0: off."""

    def without_pixels(self: K) -> K:
        return derive(self, seen_classes=0.0)


LossPer = Literal["item", "pair"]


def per(unit: LossPer, objective: Objective) -> Objective:
    """The objective with its loss a mean over targets ("item") or over pairs ("pair")."""
    return SummedByPair(objective) if unit == "pair" else objective


def weighed(*objectives: tuple[Objective, float]) -> Schedule:
    """A schedule of one forward pass with weighted losses; objectives of weight 0 are left out."""
    used = [(objective, weight) for objective, weight in objectives if weight]
    weights = {objective.name: weight for objective, weight in used}
    return Schedule(((OneForward(tuple(objective for objective, _ in used), weights), 1.0),))
