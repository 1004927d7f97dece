"""The feature contract: what made the features. It is stored with them and with every model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

MOST_VALUES = 1_000_000  # values of one feature
GIVEN = "given"  # `extractor` of features that were made outside Diptych
Count = Annotated[int, Field(ge=0, le=MOST_VALUES)]


@dataclass(frozen=True)
class FeatureProfile:
    """Statistics of features, from which `vision.features.profile` detects another extractor of the same size."""

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    means: tuple[float, ...]  # mean of each of up to 256 of the F values, evenly spaced
    spread: float  # variance over images of an image's means, averaged over those values
    pictures: int  # number of images measured
    size: float  # root mean square of all values


@dataclass(frozen=True)
class FeatureContract:
    """The origin of a set of features. Two sets may be mixed only if their contracts agree.

    With features of another detector, a model's accuracy falls without any error (huggingface/transformers#8769). So a
    difference is refused; the error names the field.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)

    extractor: str  # "storybook-detector", "fasterrcnn_resnet50_fpn", "ground-truth", "grid:resnet18", "given"
    weights: str  # sha256 of its weights; "" if it has none
    feature_size: Count  # F; 0 if the model reads pixels
    class_names: tuple[str, ...] = ()  # C names, in the order of `Regions.classes`
    box_format: str = "corners, fractions of the picture"
    selection: str = "all"  # the rule that selected the regions, with its numbers
    whole: bool = False  # whether a feature of the whole image is stored too
    whole_size: Count = 0  # size of that feature; 0: feature_size
    profile: FeatureProfile | None = None  # for given features, whose weights are unknown

    def differences(self, other: FeatureContract) -> list[str]:
        """One line per field that differs: `name: this value, not that value`.

        Profiles are compared by `vision.features.profile`.
        """
        mine, theirs = vars(self), vars(other)
        return [
            f"{name}: {_short(mine[name])}, not {_short(theirs[name])}"
            for name in mine
            if name != "profile" and mine[name] != theirs[name]
        ]

    @property
    def is_given(self) -> bool:
        """True if the features were made outside Diptych."""
        return self.extractor == GIVEN or self.named

    @property
    def named(self) -> bool:
        """True if the features were given and the user has named what made them."""
        return self.extractor.startswith(f"{GIVEN}: ")

    def to_json(self) -> dict[str, Any]:
        """The JSON that `runtime.configs.of_json` reads."""
        return asdict(self)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} names" if len(value) > 3 else repr(value)
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else repr(value)
