"""The interface of every source of regions."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions

Picture = UInt8[Tensor, "3 _ _"]  # an upright RGB image of any height and width
BACKGROUND = "background"  # the class of boxes without an object


@runtime_checkable
class Detector(Protocol):
    """Extracts the regions of images, as its contract describes.

    `needs_pictures` is False where the regions come from the record alone; then no image is opened.
    """

    needs_pictures: bool

    @property
    def contract(self) -> FeatureContract: ...

    @property
    def network(self) -> nn.Module | None:
        """All modules that compute, movable to another device. Regions are returned on the CPU."""

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        """Return the regions of each record. Raises DataError for an image that cannot be processed."""

    def save(self, folder: Path) -> None:
        """Write a folder that `load_detector` opens: `detector.json` and weights."""


@contextmanager
def computing_on(detector: Detector, device: torch.device) -> Iterator[None]:
    """Move the detector's network to a device inside the context. Its contract is computed first, on the CPU."""
    if detector.network is None:
        yield
        return
    _ = detector.contract
    detector.network.to(device)
    try:
        yield
    finally:
        detector.network.to("cpu")


def regions_of(
    picture: Picture,
    boxes: Float[Tensor, "R 4"],
    scores: Float[Tensor, "R"],
    classes: Float[Tensor, "R C"] | None = None,
    features: Float[Tensor, "R F"] | None = None,
    whole: Float[Tensor, "F"] | None = None,
) -> Regions:
    """Make the regions of an image on the CPU; boxes are corners as fractions of the image."""
    classes, features, whole = (None if one is None else one.cpu() for one in (classes, features, whole))
    size = (picture.shape[2], picture.shape[1])
    return Regions(boxes.cpu(), scores.cpu(), size, classes, features, whole=whole)


def groups_of_one_size(sizes: Sequence[Hashable], at_once: int) -> Iterator[list[int]]:
    """Yield the indices of equal sizes, up to `at_once` together: images that share a batch without padding."""
    groups: dict[Hashable, list[int]] = {}
    for number, size in enumerate(sizes):
        groups.setdefault(size, []).append(number)
    for numbers in groups.values():
        for start in range(0, len(numbers), at_once):
            yield numbers[start : start + at_once]
