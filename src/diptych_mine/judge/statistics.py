"""Statistics of pixels that distinguish photographs from charts, pages of text and icons."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 96
SMALL = 256  # images are reduced to at most this many pixels per side before a judge receives them
BINS = 8
NAMES = (
    "mean_r", "mean_g", "mean_b", "spread_r", "spread_g", "spread_b", "saturation", "saturation_spread", "entropy",
    "commonest", "colours", "flat", "edges", "white", "black", "level_edges", "grain", "grain_spread",
    *(f"grey_{bin}" for bin in range(BINS)),
)  # fmt: skip


def small(image: Image.Image) -> Image.Image:
    """Return a copy of the image, reduced to at most SMALL pixels per side."""
    copy = image.copy()
    copy.thumbnail((SMALL, SMALL))
    return copy


def statistics(image: Image.Image) -> NDArray[np.float64]:
    """Return the statistics that NAMES lists, of the image resized to 96 x 96 pixels and of its unscaled centre."""
    whole = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float64) / 255
    grey = whole.mean(2)
    high, low = whole.max(2), whole.min(2)
    saturation = np.divide(high - low, high, out=np.zeros_like(high), where=high > 0)
    cells = (whole * 15.999).astype(np.int64) @ np.array([256, 16, 1])
    counts = np.bincount(cells.ravel(), minlength=4096) / cells.size
    shares = counts[counts > 0]
    across, down = np.abs(np.diff(grey, axis=1)), np.abs(np.diff(grey, axis=0))
    strength = np.concatenate([across.ravel(), down.ravel()])
    level = float(down[down > 0.15].size + 1) / float(across[across > 0.15].size + 1)
    left, top = max(0, (image.width - 2 * SIDE) // 2), max(0, (image.height - 2 * SIDE) // 2)
    middle = np.asarray(image.convert("L").crop((left, top, left + 2 * SIDE, top + 2 * SIDE)), np.float64) / 255
    grain = np.abs(4 * middle[1:-1, 1:-1] - middle[:-2, 1:-1] - middle[2:, 1:-1] - middle[1:-1, :-2] - middle[1:-1, 2:])
    columns = [
        *whole.mean((0, 1)), *whole.std((0, 1)), saturation.mean(), saturation.std(), -(shares * np.log2(shares)).sum(),
        counts.max(), np.log1p(len(shares)), (strength < 0.004).mean(), (strength > 0.15).mean(), (low > 0.95).mean(),
        (high < 0.05).mean(), np.log(level), np.log(np.median(grain) + 1e-3), grain.std(),
    ]  # fmt: skip
    bins = np.histogram(grey, BINS, (0, 1))[0] / grey.size
    return np.array([*columns, *bins], np.float64)
