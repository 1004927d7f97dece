"""What made the features: it travels with them and with every checkpoint."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

MOST_VALUES = 1_000_000  # of a feature


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

    def differences(self, other: FeatureContract) -> list[str]:
        """One line for each field that differs: `name: this one, that one`."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name}: {_short(mine[name])}, not {_short(theirs[name])}" for name in mine if mine[name] != theirs[name]
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> FeatureContract:
        """Raises ValueError for what is no contract."""
        kinds = {one.name: type(one.default) for one in fields(cls) if one.default is not MISSING}
        kinds |= {"extractor": str, "weights": str, "feature_size": int}
        if (
            not isinstance(values, dict)
            or not {"extractor", "weights", "feature_size"} <= values.keys() <= kinds.keys()
        ):
            raise ValueError("no feature contract")
        read = {**values, "class_names": tuple(values.get("class_names", ()))}
        for name, value in read.items():
            if type(value) is not kinds[name] or (kinds[name] is int and not 0 <= value <= MOST_VALUES):
                raise ValueError(f"{name}: found {value!r:.50}")
        if not all(isinstance(name, str) for name in read["class_names"]):
            raise ValueError("class_names: found others than texts")
        return cls(**read)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} names" if len(value) > 3 else repr(value)
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else repr(value)
