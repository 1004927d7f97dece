"""What is told of features that were made elsewhere: the name their maker gave, and their statistics."""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diptych.core import FeatureContract
from diptych.core.contract import FeatureProfile
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of

PICTURES = 32  # that are looked at, evenly spaced over the names
MEANS = 256
LONGEST_NAME = 200
NAMED_IN = "extractor.txt"
NAME_IT = f"where it is the same, write its name to {NAMED_IN} beside both"
# Between sets of one extractor, measured on drawn pictures (docs/log.md).
MOST_TIMES = 3.0  # by which values may be larger
FEWEST_MEANS = 32  # fewer correlate by chance
LEAST_EXPECTED = 0.4  # below, too few pictures were looked at
LEAST_SHARE = 0.4  # of the correlation that is to be expected


def differences(one: FeatureContract, other: FeatureContract) -> list[str]:
    """What speaks against mixing features of two contracts: fields, or else the profiles of features that were given
    and that nobody named."""
    lines = one.differences(other)
    if not lines and one.profile is not None and other.profile is not None and not one.named:
        found = unlike(one.profile, other.profile)
        lines += [] if found is None else [f"profile: {found}, as if of another extractor; {NAME_IT}"]
    return lines


def unlike(one: FeatureProfile, other: FeatureProfile) -> str | None:
    """What speaks against the same extractor; None where nothing does.

    Means of the values differ from picture to picture, but their order is the extractor's own: over other pictures
    they correlate as well as so few pictures allow, and those of another extractor by chance alone.
    """
    if min(one.size, other.size) * MOST_TIMES < max(one.size, other.size):
        return f"values of a size of {one.size:.3g}, not {other.size:.3g}"
    if len(one.means) != len(other.means) or len(one.means) < FEWEST_MEANS:
        return None
    spread = max(one.spread, other.spread)  # of one picture nothing is known of it
    expected = 1.0
    for profile in (one, other):
        variance = float(np.var(profile.means))
        share = 1 - spread / max(1, profile.pictures) / variance if variance > 0 else 0.0
        expected *= sqrt(max(0.0, share))
    if expected < LEAST_EXPECTED:
        return None
    found = float(np.corrcoef(one.means, other.means)[0, 1])
    if found >= expected * LEAST_SHARE:
        return None
    return f"means of values that correlate by {found:.2f}, where {expected:.2f} is to be expected"


def profile_of(features: Sequence[npt.NDArray[np.float32]]) -> FeatureProfile | None:
    """Of the regions of some pictures, (R, F) each; None where there are none."""
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
    """Of what made them, as `extractor.txt` beside them says it in a line. Raises DataError where it does not."""
    file = (path if path.is_dir() else path.parent) / NAMED_IN
    if not file.is_file():
        return None
    try:
        name = text_of(file, "utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file} ({error}); wanted the name of what made the features") from error
    if not name.isprintable() or not 1 <= len(name) <= LONGEST_NAME:
        raise DataError(f"{file}: found {name[:40]!r}, wanted a name in one line, of up to {LONGEST_NAME} letters")
    return name


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
