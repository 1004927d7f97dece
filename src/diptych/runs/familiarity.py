"""Decide from an image's regions if the image resembles a model's training images.

The familiarity of an image has two terms. The first is the log-odds of its regions' mean score. The second is minus the
log of the distance from their mean feature to the nearest of 256 centres. The centres and the threshold are fitted to
training images. docs/results/familiar.md reports hits and false alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn.functional import normalize

from diptych.core import Regions
from diptych.data.store.store import Store
from diptych.runtime.errors import CheckpointError, explained
from diptych.runtime.weight_files import write_weights
from diptych.vision.detectors.load import is_drawn

FILE = "familiarity.safetensors"
CENTRES, ROUNDS = 256, 10  # number of clusters and of k-means iterations
# Minimum and maximum number of images for a fit; with fewer images, the quantile is unreliable.
FEWEST, MOST = 300, 4000
# If the start model's fit finds more than this share of the new training images unfamiliar, the fit is dropped.
STRANGE = 0.05
QUANTILE = 0.005  # this quantile of the training images' familiarity is the threshold
# Lower limit of the distance between an image and a centre. It prevents log(0) if the image is a centre itself.
NEAREST = 0.01


@dataclass(frozen=True)
class Familiarity:
    """The fitted centres (unit vectors), and the threshold `least`: images with a lower familiarity are unfamiliar."""

    centres: Float[Tensor, "C F"]
    least: float

    @classmethod
    def measure(cls, means: Float[Tensor, "N F"], scores: Float[Tensor, "N"]) -> Familiarity:
        """Fit to images, given by the mean feature and mean score of their regions.

        Two thirds fit the centres, the rest the threshold.
        """
        last = torch.arange(len(means)) % 3 == 2
        centres = _centres(means[~last])
        return cls(centres, float(_familiarity(means[last], scores[last], centres).quantile(QUANTILE)))

    def knows(self, regions: Regions) -> bool:
        """Return True if an image with these regions resembles the training images.

        The result is False for an image without regions.
        """
        if not len(regions) or regions.features is None:
            return False
        mean, score = described(regions)
        return float(_familiarity(mean[None], score[None], self.centres)) >= self.least

    def save(self, folder: Path) -> None:
        write_weights({"centres": self.centres.half(), "least": torch.tensor(self.least)}, folder / FILE)

    @classmethod
    def load(cls, folder: Path, feature_size: int) -> Familiarity:
        """Read from a model folder. Raises CheckpointError if the file is damaged or was made for other features."""
        path = folder / FILE
        causes, remedy = (SafetensorError, RuntimeError), "copy the model folder again"
        with explained(CheckpointError, f"{path} is damaged", remedy, *causes), safe_open(path, "pt") as file:
            centres, least = file.get_tensor("centres").float(), float(file.get_tensor("least"))
        if centres.ndim != 2 or centres.shape[1] != feature_size:
            raise CheckpointError(
                f"{path} has centres {tuple(centres.shape)}, expected (N, {feature_size}); copy the model folder again"
            )
        return cls(centres, least)


def described(regions: Regions) -> tuple[Float[Tensor, "F"], Float[Tensor, ""]]:
    """Return the mean feature (as a unit vector) and the mean score of an image's regions."""
    assert regions.features is not None
    return normalize(regions.features.float().mean(0), dim=0).cpu(), regions.scores.float().mean().cpu()


def measured(store: Store, splits: Sequence[str], most: int, before: Familiarity | None = None) -> Familiarity | None:
    """Fit a `Familiarity` to the images of `splits`, with at most `most` regions per image.

    With fewer than 300 images, nothing is fitted. Return `before`, the start model's fit, if it recognises at least 95%
    of these images, else None. Also return None if the store was made with another detector than Storybook's.
    """
    if not is_drawn(store.contract.extractor):
        return None
    numbers = sorted({number for split in splits for number in store.split(split)})
    step = max(1, len(numbers) // MOST)
    records = (store.record(number).best_regions(most) for number in numbers[::step])
    # Several stores leave features out that differ.
    regions = [of for one in records if (of := one.regions) is not None and of.features is not None and len(of)]
    if len(regions) < FEWEST:
        strange = sum(not before.knows(one) for one in regions) if before else 0
        return before if strange <= max(1, STRANGE * len(regions)) else None
    means, scores = zip(*map(described, regions), strict=True)
    return Familiarity.measure(torch.stack(means), torch.stack(scores))


def _familiarity(
    means: Float[Tensor, "N F"], scores: Float[Tensor, "N"], centres: Float[Tensor, "C F"]
) -> Float[Tensor, "N"]:
    # `amax` selects the nearest centre, which has the largest cosine.
    return scores.logit(1e-6) - (1 - (means @ centres.T).amax(1)).clamp(min=NEAREST).log()


def _centres(means: Float[Tensor, "N F"]) -> Float[Tensor, "C F"]:
    """Cluster unit vectors with spherical k-means. The initial centres are every n-th vector.

    The result is rounded to half precision, as in the saved file.
    """
    centres = means[:: max(1, len(means) // CENTRES)][:CENTRES].clone()
    for _ in range(ROUNDS):
        nearest = (means @ centres.T).argmax(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, means)
        centres = torch.where(sums.norm(dim=1, keepdim=True) > 0, normalize(sums, dim=1), centres)
    return centres.half().float()
