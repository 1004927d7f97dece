"""Identity of features made elsewhere: the extractor's name given by the user, and statistics of the values."""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diptych.core import FeatureContract
from diptych.core.contract import FeatureProfile
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of

PICTURES = 32  # images that a profile is computed from, evenly spaced over the names
MEANS = 256
LONGEST_NAME = 200
NAMED_IN = "extractor.txt"
NAME_IT = f"where it is the same, write its name to {NAMED_IN} next to both"
# Between sets of one extractor, measured on drawn pictures (experiments/LOG.md).
MOST_TIMES = 3.0  # largest ratio of the two root mean squares
FEWEST_MEANS = 32  # fewer means correlate by chance
LEAST_EXPECTED = 0.4  # a lower expected correlation: too few images to decide
LEAST_SHARE = 0.4  # smallest share of the expected correlation


def differences(one: FeatureContract, other: FeatureContract) -> list[str]:
    """List the reasons not to mix features of two contracts.

    The reasons are the fields that differ. If no field differs, the profiles of features without an extractor's name
    are compared.
    """
    lines = one.differences(other)
    if not lines and one.profile is not None and other.profile is not None and not one.named:
        reason = unlike(one.profile, other.profile)
        lines += [] if reason is None else [f"profile: {reason}, as if of another extractor; {NAME_IT}"]
    return lines


def unlike(one: FeatureProfile, other: FeatureProfile) -> str | None:
    """Return the reason why two profiles cannot come from one extractor, or None.

    The mean of each value varies from image to image, but the pattern of the means is typical of the extractor.
    Profiles of one extractor correlate as well as the number of images allows; those of two extractors only by chance.
    """
    if min(one.size, other.size) * MOST_TIMES < max(one.size, other.size):
        return f"values of a size of {one.size:.3g}, not {other.size:.3g}"
    if len(one.means) != len(other.means) or len(one.means) < FEWEST_MEANS:
        return None
    spread = max(one.spread, other.spread)  # the spread of a single image is unknown
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
    return f"means of values that correlate by {correlation:.2f}, where {expected:.2f} is to be expected"


def profile_of(features: Sequence[npt.NDArray[np.float32]]) -> FeatureProfile | None:
    """Compute the profile of the features (R, F) of some images; None if there are none."""
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
    """Return the extractor's name from `extractor.txt` next to the features; None if there is no such file.

    Raises DataError if the file is not a single line of up to LONGEST_NAME characters.
    """
    file = (path if path.is_dir() else path.parent) / NAMED_IN
    if not file.is_file():
        return None
    try:
        name = text_of(file, "utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file} ({error}); expected the name of the features' program") from error
    if not name.isprintable() or not 1 <= len(name) <= LONGEST_NAME:
        raise DataError(f"{file}: found {name[:40]!r}, expected a name in one line, of up to {LONGEST_NAME} characters")
    return name


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
