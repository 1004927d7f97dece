"""The rule that chooses regions among a detector's boxes. It is part of the feature contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.runtime.configs import of_json
from diptych.runtime.errors import RecipeError
from diptych.vision.detectors.nms import batched_nms, nms


@dataclass(frozen=True)
class Selection:
    """NMS, then a threshold on the score, then the best boxes: at least `least` and at most `most`.

    If fewer than `least` boxes are left, dropped boxes are added, highest score first: boxes below `score`, then boxes
    that NMS dropped. If `least` equals `most`, each image has exactly this number of regions, as in the papers.
    """

    most: int = 100
    least: int = 0
    score: float = 0.0
    overlap: float | None = 0.5  # IoU threshold of NMS; None: no NMS
    per_class: bool = True  # True: NMS within each class; False: over all classes

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most or self.most < 1:
            raise RecipeError(f"least={self.least} and most={self.most}: expected 0 <= least <= most and most >= 1")
        if not 0 <= self.score <= 1 or (self.overlap is not None and not 0 <= self.overlap <= 1):
            raise RecipeError(f"score={self.score} and overlap={self.overlap}: expected numbers between 0 and 1")

    def __str__(self) -> str:
        count = f"exactly {self.most}" if self.least == self.most else f"at most {self.most}"
        if 0 < self.least < self.most:
            count = f"at least {self.least}, {count}"
        parts = [count, f"score over {self.score:g}" if self.score else "by score"]
        if self.overlap is not None:
            parts.append(f"NMS {self.overlap:g} {'per class' if self.per_class else 'over all classes'}")
        return ", ".join(parts)

    def changed(self, settings: Mapping[str, Any]) -> tuple[Selection, dict[str, Any]]:
        """Return the rule with `settings` applied, and the settings that do not belong to a rule.

        If only one of `least` and `most` is given, the other is adjusted so that `least <= most`. Raises RecipeError.
        """
        values = asdict(self)
        given = {key: value for key, value in settings.items() if key in values}
        try:
            return of_json(Selection, with_counts(values, given)), {
                key: value for key, value in settings.items() if key not in given
            }
        except ValueError as error:
            raise RecipeError(f"a setting of the selection cannot be used: {error}") from error

    def choose(
        self, boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], classes: Int[Tensor, "N"]
    ) -> Int[Tensor, "R"]:
        """Return the indices of the chosen boxes, highest score first. Boxes added to reach `least` are last."""
        if self.overlap is None:
            ranked = scores.argsort(descending=True, stable=True)
        elif self.per_class:
            ranked = batched_nms(boxes, scores, classes, self.overlap)
        else:
            ranked = nms(boxes, scores, self.overlap)
        # NMS may break ties in any order. Sorting by index, then stably by score, makes the order reproducible.
        ranked = ranked.sort().values
        ranked = ranked[scores[ranked].argsort(descending=True, stable=True)]
        good = ranked[scores[ranked] > self.score][: self.most]
        if len(good) >= self.least:
            return good
        overlapped = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
        overlapped[ranked] = False
        spare = overlapped.nonzero()[:, 0]
        spare = spare[scores[spare].argsort(descending=True, stable=True)]
        return torch.cat([ranked, spare])[: self.least]


def with_counts(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` updated with `given`.

    If only one of `least` and `most` is given, the other is adjusted so that `least <= most`.
    """
    both = {**values, **given}
    most, least = both["most"], both["least"]
    if type(most) is int and type(least) is int:
        both |= {"least": min(least, most)} if "least" not in given else {}
        both |= {"most": max(least, most)} if "most" not in given else {}
    return both


EXACTLY_100 = Selection(most=100, least=100)
STORYBOOK = Selection(most=12, least=1, score=0.3, overlap=0.6)  # Storybook images have 2 to 8 objects
# Rules by name. `diptych.systems.find_selection` also knows the rules of the systems.
SELECTIONS: Mapping[str, Selection] = {"storybook": STORYBOOK}
