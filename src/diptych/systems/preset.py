"""A preset: a recipe by its name, as plain data, made when it is asked for.

Whole ones are written out with `preset`; what changes little of another is that one's `but`, as `derive` has it: a
section is given whole, or as a dict of what changes in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

from diptych.models import ModelConfig
from diptych.models.decoding import DecodingOptions
from diptych.objectives.settings import Objectives
from diptych.runtime.configs import derive
from diptych.systems.recipe import DataConfig, Recipe
from diptych.systems.stages import Stages
from diptych.training.config import OptimizerConfig, TrainingConfig

Changed = Mapping[str, Any]


class Fields(TypedDict, total=False):
    """Those of a `Recipe`, but its name."""

    system: str
    task: str
    model: ModelConfig | Changed
    init: str | None
    objectives: Objectives | Changed
    optimizer: OptimizerConfig | Changed
    training: TrainingConfig | Changed
    decoding: DecodingOptions | Changed
    data: DataConfig | Changed


@dataclass(frozen=True)
class Preset:
    """A call makes the recipe."""

    name: str
    about: str  # what it is, in a sentence
    fields: Fields  # of the recipe; of one that begins as another: what changes
    base: Preset | None = None

    def but(self, name: str, about: str, **changes: Unpack[Fields]) -> Preset:
        """Another one, with these changes."""
        return Preset(name, about, changes, self)

    @property
    def model(self) -> ModelConfig:
        """That of its recipe."""
        own = self.fields.get("model", {})
        if isinstance(own, ModelConfig):
            return own
        assert self.base is not None, f"{self.name} has no base, and its model is not whole"
        return derive(self.base.model, **own)

    def __call__(self) -> Recipe:
        if self.base is None:
            return Recipe.model_validate({"name": self.name, **self.fields})
        return derive(self.base(), name=self.name, **self.fields)


def preset(name: str, about: str, **fields: Unpack[Fields]) -> Preset:
    return Preset(name, about, fields)


@dataclass(frozen=True)
class StagedPreset:
    """Several that train one after the other, each from the weights of the one before."""

    name: str
    about: str
    stages: tuple[Preset, ...]

    def __call__(self) -> Stages:
        numbered = (replace(stage, name=f"{self.name}/{number}") for number, stage in enumerate(self.stages, start=1))
        first, *later = (stage() for stage in numbered)
        return Stages(self.name, (first, *(derive(recipe, init=None) for recipe in later)))
