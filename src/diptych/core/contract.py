"""What made the features: it travels with them and with every checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from diptych.runtime.configs import first_problem

MOST_VALUES = 1_000_000  # of a feature
GIVEN = "given"  # the extractor of features that were made elsewhere
Count = Annotated[int, Field(ge=0, le=MOST_VALUES)]


@dataclass(frozen=True)
class FeatureProfile:
    """Statistics of features, by which `vision.features.profile` tells those of another extractor of the same size."""

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    means: tuple[float, ...]  # of up to 256 of the F values, evenly spaced
    spread: float  # variance of a picture's own means, the mean over those values
    pictures: int  # that were looked at
    size: float  # root of the mean square of all values

    @classmethod
    def from_json(cls, values: Any) -> FeatureProfile:
        """Raises ValueError for what is no profile."""
        profile: FeatureProfile = _read(cls, values)
        return profile


@dataclass(frozen=True)
class FeatureContract:
    """Two sets of features may be mixed only where their contracts agree.

    Features from another detector than the one a model was trained on cost accuracy in silence
    (huggingface/transformers#8769), so a difference is refused by name.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    extractor: str  # "storybook-detector", "fasterrcnn_resnet50_fpn", "ground-truth", "grid:resnet18", "given"
    weights: str  # sha256 of its weights; "" where there are none
    feature_size: Count  # F; 0 where the model reads pixels
    class_names: tuple[str, ...] = ()  # C names, in the order of `Regions.classes`
    box_format: str = "corners, fractions of the picture"
    selection: str = "all"  # the rule that chose the regions, with its numbers
    whole: bool = False  # whether the picture's own feature is stored too
    whole_size: Count = 0  # of it; 0: feature_size
    profile: FeatureProfile | None = None  # of features that were given, whose weights nobody knows

    def differences(self, other: FeatureContract) -> list[str]:
        """One line for each field that differs: `name: this one, that one`. Profiles: `vision.features.profile`."""
        mine, theirs = vars(self), vars(other)
        return [
            f"{name}: {_short(mine[name])}, not {_short(theirs[name])}"
            for name in mine
            if name != "profile" and mine[name] != theirs[name]
        ]

    @property
    def is_given(self) -> bool:
        """Whether the features were made elsewhere."""
        return self.extractor == GIVEN or self.named

    @property
    def named(self) -> bool:
        """Whether a user has named what made features that were given."""
        return self.extractor.startswith(f"{GIVEN}: ")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> FeatureContract:
        """Raises ValueError for what is no contract."""
        contract: FeatureContract = _read(cls, values)
        return contract


def _read(kind: Any, values: Any) -> Any:
    try:
        return _reader(kind).validate_json(json.dumps(values))
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


@cache
def _reader(kind: Any) -> Any:
    return TypeAdapter(kind)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} names" if len(value) > 3 else repr(value)
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else repr(value)
