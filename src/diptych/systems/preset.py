"""Presets: named recipes as plain data. Calling a preset builds the `Recipe`.

`preset` defines a preset with all fields. `Preset.but` derives a preset from another one. A changed section is given as
a whole, or as a dict of the changed keys.
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
    """The fields of a `Recipe`, except `name`."""

    system: str
    task: str
    model: ModelConfig | Changed
    init: str | None
    network_init: str | None
    objectives: Objectives | Changed
    optimizer: OptimizerConfig | Changed
    training: TrainingConfig | Changed
    decoding: DecodingOptions | Changed
    data: DataConfig | Changed


@dataclass(frozen=True)
class Preset:
    """A named recipe. Calling it builds the `Recipe`, and raises RecipeError for unknown keys or invalid values."""

    name: str
    about: str  # one sentence for the list of recipes
    fields: Fields  # settings of the recipe: all, or only those that differ from `base`
    base: Preset | None = None

    def but(self, name: str, about: str, **changes: Unpack[Fields]) -> Preset:
        """Return a new preset, equal to this one except for the fields in `changes`."""
        return Preset(name, about, changes, self)

    @property
    def model(self) -> ModelConfig:
        """Return the section `model` of the recipe."""
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
    """Return a preset that defines all its fields, without a base."""
    return Preset(name, about, fields)


@dataclass(frozen=True)
class StagedPreset:
    """A recipe of several stages. Each stage is a preset, and starts from the weights of the previous stage."""

    name: str
    about: str
    stages: tuple[Preset, ...]

    def __call__(self) -> Stages:
        numbered = (replace(stage, name=f"{self.name}/{number}") for number, stage in enumerate(self.stages, start=1))
        first, *later = (stage() for stage in numbered)
        return Stages(self.name, (first, *(derive(recipe, init=None, network_init=None) for recipe in later)))
