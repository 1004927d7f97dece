"""The feature contract: a description of the extractor that computed the features of a store or model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

MOST_VALUES = 1_000_000  # a feature vector has at most this many values
# The value of `extractor` for features that were computed outside Diptych.
GIVEN = "given"
Count = Annotated[int, Field(ge=0, le=MOST_VALUES)]
# The fields that must be equal, for each part of regions that a model may read. Every model reads their boxes.
Part = Literal["boxes", "features", "classes"]
PARTS: dict[Part, frozenset[str]] = {
    "boxes": frozenset({"box_format"}),
    "features": frozenset({"extractor", "weights", "feature_size", "selection", "whole", "whole_size"}),
    "classes": frozenset({"class_names"}),
}


@dataclass(frozen=True)
class FeatureProfile:
    """Statistics of features.

    `vision.features.profile` compares them, to detect features of another extractor that have the same size.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    means: tuple[float, ...]  # means of at most 256 dimensions of the features, at equal intervals
    spread: float  # variance of the images' mean features, averaged over these dimensions
    pictures: int  # number of images that the statistics were computed from
    size: float  # root mean square of all values of the features


@dataclass(frozen=True)
class FeatureContract:
    """The origin of a set of features. Sets of features may be mixed only if their contracts are equal.

    A model that does not read the features or the classes does not need the fields that describe them (`PARTS`).

    With another detector's features, a model runs but is less accurate (huggingface/transformers#8769). So code that
    compares contracts raises an error if they differ, with the fields that differ.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)

    extractor: str  # name of the extractor, such as "storybook-detector", "grid:resnet18" or "given"
    weights: str  # SHA-256 of the extractor's weights; "" if it has none
    feature_size: Count  # number of values of a feature (F); 0 if the model reads pixels
    class_names: tuple[str, ...] = ()  # names of the C classes, in the order of `Regions.classes`
    box_format: str = "corners, fractions of the picture"
    selection: str = "all"  # rule by which regions were selected, with its parameters
    whole: bool = False  # True: a feature of the whole image is stored too
    whole_size: Count = 0  # number of values of the whole image's feature; 0: feature_size
    profile: FeatureProfile | None = None  # statistics of features that were computed outside Diptych

    def differences(self, other: FeatureContract, parts: Collection[Part] = tuple(PARTS)) -> list[str]:
        """Return a line for each field of `parts` that differs: `name: this value, not that value`.

        Profiles are compared in `vision.features.profile`, not here.
        """
        mine, theirs = vars(self), vars(other)
        return [
            f"{name}: {_short(mine[name])}, not {_short(theirs[name])}"
            for name in mine
            if any(name in PARTS[part] for part in parts) and mine[name] != theirs[name]
        ]

    @property
    def background(self) -> int | None:
        """Index of the class "background" or "__background__", of boxes that show no object; None: there is none."""
        names = [name.strip("_").lower() for name in self.class_names]
        return names.index("background") if "background" in names else None

    @property
    def is_given(self) -> bool:
        """True if the features were computed outside Diptych."""
        return self.extractor == GIVEN or self.named

    @property
    def named(self) -> bool:
        """True if the features were computed outside Diptych and the user has named their extractor."""
        return self.extractor.startswith(f"{GIVEN}: ")

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict for JSON. `runtime.configs.of_json` restores the contract from the dict."""
        return asdict(self)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} names" if len(value) > 3 else repr(value)
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else repr(value)
