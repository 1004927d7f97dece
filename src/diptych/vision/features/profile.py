"""What is told of features that were made elsewhere: the name their maker gave, and their statistics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diptych.core.contract import NAMED_IN, FeatureProfile
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of

PICTURES = 32  # that are looked at, evenly spaced over the names
MEANS = 256
LONGEST_NAME = 200


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
