"""The one interface behind which every source of regions stands."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions

Picture = UInt8[Tensor, "3 _ _"]  # RGB, upright; each of its own height and width
BACKGROUND = "background"  # the class of what is no object


@runtime_checkable
class Detector(Protocol):
    """Extracts the regions of pictures. What it does is written down in its contract.

    `needs_pictures` is False where the regions come from the record alone, so that no picture need be opened.
    """

    needs_pictures: bool

    @property
    def contract(self) -> FeatureContract: ...

    @property
    def network(self) -> nn.Module | None:
        """All that computes, which may be moved to another device; regions are handed back on the CPU."""

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]: ...

    def save(self, folder: Path) -> None:
        """Write what `load_detector` needs into a folder (`detector.json`, weights)."""


@contextmanager
def computing_on(detector: Detector, device: torch.device) -> Iterator[None]:
    """The detector's network is on the device meanwhile; what it is (its contract) is known before."""
    if detector.network is None:
        yield
        return
    _ = detector.contract
    detector.network.to(device)
    try:
        yield
    finally:
        detector.network.to("cpu")
