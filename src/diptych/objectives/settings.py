"""What is trained, as names and numbers, and how that becomes a schedule of objectives."""

from typing import Literal, TypeVar

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
    """One kind of training. `kind`, of each subclass its own, tells a saved recipe which."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    kind: str

    @property
    def answer_form(self) -> AnswerForm:
        """How answers are learnt: each by itself, or all against each other."""
        return "binary"

    @property
    def reads_pairs(self) -> bool:
        """Whether retrieval reads a picture and a text together, and not apart."""
        return False

    @property
    def of_pictures(self) -> list[str]:
        """Tasks of pictures that take turns with whole batches, so that text alone wants a stage of its own."""
        return []

    def without_pixels(self: K) -> K:
        """For a model that reads stored features: nothing is asked of pixels."""
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        raise NotImplementedError


class SeenClasses(Objectives):
    """With regions' classes told from pixels alone, before words are read (SeenRegionClass), where wanted."""

    seen_classes: NonNegativeFloat = 0.0
    """Weight of the classification of regions from pixels alone (model.network); 0: off."""

    def without_pixels(self: K) -> K:
        return derive(self, seen_classes=0.0)


LossPer = Literal["item", "pair"]


def per(unit: LossPer, objective: Objective) -> Objective:
    """The objective with its loss a mean over what is asked, or over pairs."""
    return SummedByPair(objective) if unit == "pair" else objective


def weighed(*objectives: tuple[Objective, float]) -> Schedule:
    """On one forward pass, each loss times its weight; what weighs nothing is left out."""
    used = [(objective, weight) for objective, weight in objectives if weight]
    weights = {objective.name: weight for objective, weight in used}
    return Schedule(((OneForward(tuple(objective for objective, _ in used), weights), 1.0),))
