"""What made the features: it travels with them and with every checkpoint."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from math import isfinite, sqrt
from statistics import fmean
from typing import Any

MOST_VALUES = 1_000_000  # of a feature
GIVEN = "given"  # the extractor of features that were made elsewhere
NAMED_IN = "extractor.txt"
NAME_IT = f"where it is the same, write its name to {NAMED_IN} beside both"
# Between sets of one extractor, measured on drawn pictures (docs/log.md).
MOST_TIMES = 3.0  # by which values may be larger
FEWEST_MEANS = 32  # fewer correlate by chance
LEAST_EXPECTED = 0.4  # below, too few pictures were looked at
LEAST_SHARE = 0.4  # of the correlation that is to be expected


@dataclass(frozen=True)
class FeatureProfile:
    """Statistics of features, by which those of another extractor are told, though they are of the same size."""

    means: tuple[float, ...]  # of up to 256 of the F values, evenly spaced
    spread: float  # variance of a picture's own means, the mean over those values
    pictures: int  # that were looked at
    size: float  # root of the mean square of all values

    def unlike(self, other: FeatureProfile) -> str | None:
        """What speaks against the same extractor; None where nothing does.

        Means of the values differ from picture to picture, but their order is the extractor's own: over other pictures
        they correlate as well as so few pictures allow, and those of another extractor by chance alone.
        """
        if min(self.size, other.size) * MOST_TIMES < max(self.size, other.size):
            return f"values of a size of {self.size:.3g}, not {other.size:.3g}"
        if len(self.means) != len(other.means) or len(self.means) < FEWEST_MEANS:
            return None
        mine, theirs = fmean(self.means), fmean(other.means)
        pairs = [(a - mine, b - theirs) for a, b in zip(self.means, other.means, strict=True)]
        spread = max(self.spread, other.spread)  # of one picture nothing is known of it
        expected = 1.0
        for variance, pictures in (
            (fmean(a * a for a, _ in pairs), self.pictures), (fmean(b * b for _, b in pairs), other.pictures)
        ):  # fmt: skip
            expected *= sqrt(max(0.0, 1 - spread / max(1, pictures) / variance)) if variance > 0 else 0.0
        if expected < LEAST_EXPECTED:
            return None
        scale = sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
        found = sum(a * b for a, b in pairs) / scale
        if found >= expected * LEAST_SHARE:
            return None
        return f"means of values that correlate by {found:.2f}, where {expected:.2f} is to be expected"

    @classmethod
    def from_json(cls, values: Any) -> FeatureProfile:
        """Raises ValueError for what is no profile."""
        try:
            means = tuple(float(mean) for mean in values["means"])
            profile = cls(means, float(values["spread"]), int(values["pictures"]), float(values["size"]))
        except (KeyError, TypeError) as error:
            raise ValueError("profile: no statistics of features") from error
        if not all(map(isfinite, (*means, profile.spread, profile.size))):
            raise ValueError("profile: found numbers that are not finite")
        return profile


@dataclass(frozen=True)
class FeatureContract:
    """Two sets of features may be mixed only where their contracts agree.

    Features from another detector than the one a model was trained on cost accuracy in silence
    (huggingface/transformers#8769), so a difference is refused by name.
    """

    extractor: str  # "storybook-detector", "fasterrcnn_resnet50_fpn", "ground-truth", "grid:resnet18", "given"
    weights: str  # sha256 of its weights; "" where there are none
    feature_size: int  # F; 0 where the model reads pixels
    class_names: tuple[str, ...] = ()  # C names, in the order of `Regions.classes`
    box_format: str = "corners, fractions of the picture"
    selection: str = "all"  # the rule that chose the regions, with its numbers
    whole: bool = False  # whether the picture's own feature is stored too
    whole_size: int = 0  # of it; 0: feature_size
    profile: FeatureProfile | None = None  # of features that were given, whose weights nobody knows

    def differences(self, other: FeatureContract) -> list[str]:
        """One line for each field that differs: `name: this one, that one`."""
        mine, theirs = vars(self), vars(other)
        lines = [
            f"{name}: {_short(mine[name])}, not {_short(theirs[name])}"
            for name in mine
            if name != "profile" and mine[name] != theirs[name]
        ]
        if not lines and self.profile is not None and other.profile is not None and not self.named:
            unlike = self.profile.unlike(other.profile)
            lines += [] if unlike is None else [f"profile: {unlike}, as if of another extractor; {NAME_IT}"]
        return lines

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
        kinds = {one.name: type(one.default) for one in fields(cls) if one.default is not MISSING}
        del kinds["profile"]
        kinds |= {"extractor": str, "weights": str, "feature_size": int}
        if not isinstance(values, dict):
            raise ValueError("no feature contract")
        profile = values.get("profile")
        values = {name: value for name, value in values.items() if name != "profile"}
        if not {"extractor", "weights", "feature_size"} <= values.keys() <= kinds.keys():
            raise ValueError("no feature contract")
        names = values.get("class_names", [])
        if not isinstance(names, list | tuple):
            raise ValueError(f"class_names: found {names!r:.50}")
        read = {**values, "class_names": tuple(names)}
        for name, value in read.items():
            if type(value) is not kinds[name] or (kinds[name] is int and not 0 <= value <= MOST_VALUES):
                raise ValueError(f"{name}: found {value!r:.50}")
        if not all(isinstance(name, str) for name in read["class_names"]):
            raise ValueError("class_names: found others than texts")
        "".join((read["extractor"], *read["class_names"])).encode()  # half a surrogate pair is no text
        return cls(**read, profile=None if profile is None else FeatureProfile.from_json(profile))


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} names" if len(value) > 3 else repr(value)
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else repr(value)
