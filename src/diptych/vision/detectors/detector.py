"""The interface of every source of regions."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions
from diptych.vision.detectors.weights import fingerprint

Picture = UInt8[Tensor, "3 _ _"]  # an upright RGB image of any height and width
N = TypeVar("N", bound=nn.Module)
BACKGROUND = "background"  # the class of boxes without an object


@runtime_checkable
class Detector(Protocol):
    """Extracts the regions of images, as its contract describes.

    If `needs_pictures` is False, the regions come from the record alone, and no image is opened.
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
    """Move the detector's network to a device inside the context. The contract is computed before, on the CPU."""
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
    picture: Picture, boxes: Float[Tensor, "R 4"], scores: Float[Tensor, "R"], **more: Tensor | None
) -> Regions:
    """Make the regions of an image on the CPU. Boxes are corners as fractions of the image; `more` has other fields."""
    others: dict[str, Any] = {name: None if one is None else one.cpu() for name, one in more.items()}
    return Regions(boxes.cpu(), scores.cpu(), (picture.shape[2], picture.shape[1]), **others)


class NetworkDetector(Generic[N]):
    """Base of detectors whose regions a network finds in images."""

    needs_pictures = True
    network: N

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the network's weights."""
        return fingerprint(self.network)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.no_grad()  # not inference mode, whose tensors cannot be trained on
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        return self.regions_in(pictures, records) if pictures else []

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        """Return the regions of each image; there is at least one image."""
        raise NotImplementedError


def groups_of_one_size(sizes: Sequence[Hashable], at_once: int) -> Iterator[list[int]]:
    """Yield the indices of images of equal size, at most `at_once` together. They share a batch without padding."""
    groups: dict[Hashable, list[int]] = {}
    for number, size in enumerate(sizes):
        groups.setdefault(size, []).append(number)
    for numbers in groups.values():
        for start in range(0, len(numbers), at_once):
            yield numbers[start : start + at_once]
