"""The rule that selects a detector's boxes as regions. It is part of the feature contract."""

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
    """Drop boxes that overlap a better one, then those below `score`; keep the best `most`, and at least `least`.

    If fewer than `least` are left, the best dropped boxes come back: first those below `score`, then overlapping ones.
    `least == most` is the papers' "exactly N".
    """

    most: int = 100
    least: int = 0
    score: float = 0.0
    overlap: float | None = 0.5  # IoU; None drops nothing
    per_class: bool = True  # only a better box of the same class drops a box

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most or self.most < 1:
            raise RecipeError(
                f"least={self.least} and most={self.most}: expected 0 <= least <= most, and most of at least 1"
            )
        if not 0 <= self.score <= 1 or (self.overlap is not None and not 0 <= self.overlap <= 1):
            raise RecipeError(f"score and overlap are between 0 and 1, found {self.score} and {self.overlap}")

    def __str__(self) -> str:
        count = f"exactly {self.most}" if self.least == self.most else f"at most {self.most}"
        if 0 < self.least < self.most:
            count = f"at least {self.least}, {count}"
        parts = [count, f"score over {self.score:g}" if self.score else "by score"]
        if self.overlap is not None:
            parts.append(f"NMS {self.overlap:g} {'per class' if self.per_class else 'over all classes'}")
        return ", ".join(parts)

    def changed(self, settings: Mapping[str, Any]) -> tuple[Selection, dict[str, Any]]:
        """Return the rule with its values in `settings` applied, and the remaining settings.

        `least` follows a smaller `most`, and `most` a larger `least`. Raises RecipeError.
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
        """Return the indices of the chosen boxes: those that pass the rule, best first, then those that came back."""
        if self.overlap is None:
            ranked = scores.argsort(descending=True, stable=True)
        elif self.per_class:
            ranked = batched_nms(boxes, scores, classes, self.overlap)
        else:
            ranked = nms(boxes, scores, self.overlap)
        # NMS may break ties in any order; a stable sort by index makes the regions of an image reproducible.
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
    """Return `values` with these changes. `least` follows a smaller `most`, and `most` a larger `least`."""
    both = {**values, **given}
    most, least = both["most"], both["least"]
    if type(most) is int and type(least) is int:
        both |= {"least": min(least, most)} if "least" not in given else {}
        both |= {"most": max(least, most)} if "most" not in given else {}
    return both


EXACTLY_100 = Selection(most=100, least=100)
STORYBOOK = Selection(most=12, least=1, score=0.3, overlap=0.6)  # its images have 2 to 8 objects
# Rules by name; `diptych.systems.find_selection` knows those of the systems too.
SELECTIONS: Mapping[str, Selection] = {"storybook": STORYBOOK}
