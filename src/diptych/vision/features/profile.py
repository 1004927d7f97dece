"""Recognise the extractor of precomputed features by the name that the user gives, and by statistics of the values."""

from collections.abc import Collection, Sequence
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diptych.core import FeatureContract
from diptych.core.contract import PARTS, FeatureProfile, Part
from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import text_of

PICTURES = 32  # number of images from which a profile is computed, evenly spaced over the names
MEANS = 256
LONGEST_NAME = 200
NAMED_IN = "extractor.txt"
NAME_IT = f"if it is the same, write its name to {NAMED_IN} next to both sets of features"
# Within these limits, two sets of features count as from one extractor. Measured on Storybook images (see
# experiments/LOG.md).
MOST_TIMES = 3.0  # maximum ratio between the root mean squares of the values
FEWEST_MEANS = 32  # with fewer feature dimensions, the means correlate by chance
LEAST_EXPECTED = 0.4  # if the expected correlation is lower, there are too few images to decide
LEAST_SHARE = 0.4  # the correlation must reach this share of the expected correlation


def differences(one: FeatureContract, other: FeatureContract, parts: Collection[Part] = tuple(PARTS)) -> list[str]:
    """Return the reasons why regions with these two contracts must not be mixed for a model that reads `parts` of them.

    The list is empty if they may be mixed.

    The reasons are the contract's fields that differ. If none differs and the extractor has no name, the profiles of
    features are compared.
    """
    lines, read = one.differences(other, parts), "features" in parts
    if read and not lines and one.profile is not None and other.profile is not None and not one.named:
        reason = unlike(one.profile, other.profile)
        lines += [] if reason is None else [f"profile: {reason}, which suggests another extractor; {NAME_IT}"]
    return lines


def refuse_other_features(store: Path, there: FeatureContract, given: FeatureContract) -> None:
    """Raise DataError if features with the contract `given` must not be mixed with those of a store."""
    if different := differences(there, given):
        raise DataError(
            f"{store} holds features that were made with other settings ({'; '.join(different)}); extract to another "
            "folder, or delete this one"
        )


def unlike(one: FeatureProfile, other: FeatureProfile) -> str | None:
    """Return the reason why two profiles cannot come from the same extractor, or None.

    A profile has the mean of each feature dimension over some images. The pattern of the means is typical of the
    extractor. Two profiles of the same extractor correlate. With fewer images they correlate less, because of noise.
    Profiles of two extractors correlate only by chance.
    """
    if min(one.size, other.size) * MOST_TIMES < max(one.size, other.size):
        return f"root mean square of the values {one.size:.3g}, not {other.size:.3g}"
    if len(one.means) != len(other.means) or len(one.means) < FEWEST_MEANS:
        return None
    spread = max(one.spread, other.spread)  # the larger spread, because a profile of one image has a spread of 0
    expected = 1.0
    for profile in (one, other):
        variance = float(np.var(profile.means))
        share = 1 - spread / max(1, profile.pictures) / variance if variance > 0 else 0.0
        expected *= sqrt(max(0.0, share))
    if expected < LEAST_EXPECTED:
        return None
    correlation = float(np.corrcoef(one.means, other.means)[0, 1])
    if correlation >= expected * LEAST_SHARE:
        return None
    return f"means of the values that correlate by {correlation:.2f}, expected about {expected:.2f}"


def profile_of(features: Sequence[npt.NDArray[np.float32]]) -> FeatureProfile | None:
    """Compute the profile of features (R, F) of some images. Return None if there are no images."""
    if not features:
        return None
    width = features[0].shape[1]
    places = np.linspace(0, width - 1, min(MEANS, width)).astype(int)
    of_pictures = np.stack([one[:, places].mean(0, dtype=np.float64) for one in features])
    spread = of_pictures.var(0, ddof=1).mean() if len(features) > 1 else 0.0
    size = np.sqrt(np.mean([np.square(one, dtype=np.float64).mean() for one in features]))
    means = tuple(_rounded(mean) for mean in of_pictures.mean(0))
    return FeatureProfile(means, _rounded(spread), len(features), _rounded(size))


def name_of(path: Path) -> str | None:
    """Return the extractor's name, read from `extractor.txt` next to the features.

    Return None if there is no such file.

    Raises DataError if the file is not a single line of up to LONGEST_NAME characters.
    """
    file = (path if path.is_dir() else path.parent) / NAMED_IN
    if not file.is_file():
        return None
    with explained(DataError, f"cannot read {file}", "expected one line, the extractor's name"):
        name = text_of(file).strip()
    if not name.isprintable() or not 1 <= len(name) <= LONGEST_NAME:
        raise DataError(f"{file}: found {name[:40]!r}, expected a name in one line of up to {LONGEST_NAME} characters")
    return name


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
