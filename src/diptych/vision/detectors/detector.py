"""The interface of detectors, which return the regions of images."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions
from diptych.vision.detectors.weights import fingerprint

Picture = UInt8[Tensor, "3 _ _"]  # upright RGB image of any height and width
N = TypeVar("N", bound=nn.Module)
BACKGROUND = "background"  # name of the class of boxes that show no object


@runtime_checkable
class Detector(Protocol):
    """A detector: extracts the regions of images. Its `contract` describes them.

    If `needs_pictures` is False, `detect` uses only the records, and callers need not open the images.
    """

    needs_pictures: bool

    @property
    def contract(self) -> FeatureContract: ...

    @property
    def network(self) -> nn.Module | None:
        """Return the module that contains all networks, so that callers can move it to a device; None if there is no
        network.

        `detect` returns regions on the CPU.
        """

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        """Return one `Regions` per record. Raises DataError for an image that cannot be processed."""

    def save(self, folder: Path) -> None:
        """Write `detector.json` and the weights to a folder. `load_detector` opens the folder."""


@dataclass(frozen=True)
class TracedDetector:
    """A detector up to its candidates, as a function of tensors that `torch.export` can trace."""

    program: nn.Module  # squares (B, 3, side, side) uint8 -> tensors named `outputs`
    side: int  # in pixels
    outputs: tuple[str, ...]
    settings: dict[str, Any]  # how the exported run.py makes regions from the outputs; JSON
    # If another network computes the features: squares of `settings["maps"]` pixels -> its map (B, F, h, w).
    maps: nn.Module | None = None


@runtime_checkable
class Traceable(Protocol):
    """A detector that `diptych export` can export."""

    def traced(self, reduced: bool) -> TracedDetector | None:
        """Return None if one of the networks cannot be traced.

        `reduced`: True to compute in bfloat16 if `detect` would; False for float32.
        """


@contextmanager
def computing_on(detector: Detector, device: torch.device) -> Iterator[None]:
    """Move the detector's network to `device` inside the `with` block.

    The contract is computed first, while the weights are on the CPU.
    """
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
    """Build the `Regions` of an image, on the CPU. `boxes`: corners as fractions of the image.

    `more`: other fields of `Regions`.
    """
    others: dict[str, Any] = {name: None if one is None else one.cpu() for name, one in more.items()}
    return Regions(boxes.cpu(), scores.cpu(), (picture.shape[2], picture.shape[1]), **others)


class NetworkDetector(Generic[N]):
    """Base class of detectors that find regions in images with a network."""

    needs_pictures = True
    network: N

    @cached_property
    def fingerprint(self) -> str:
        """Return the sha256 of the network's weights."""
        return fingerprint(self.network)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.no_grad()  # not inference_mode, because tensors made in it cannot be used in training
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        return self.regions_in(pictures, records) if pictures else []

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        """Return one `Regions` per image. Called with at least one image."""
        raise NotImplementedError


def groups_of_one_size(sizes: Sequence[Hashable], at_once: int) -> Iterator[list[int]]:
    """Yield groups of indices of images of equal size, at most `at_once` per group.

    A group can be a batch without padding.
    """
    groups: dict[Hashable, list[int]] = {}
    for number, size in enumerate(sizes):
        groups.setdefault(size, []).append(number)
    for numbers in groups.values():
        for start in range(0, len(numbers), at_once):
            yield numbers[start : start + at_once]
