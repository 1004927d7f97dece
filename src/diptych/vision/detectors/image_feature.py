"""A detector's regions, combined with a feature of the whole image from a backbone (ImageBERT, Table 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.detector import Detector, NetworkDetector, Picture
from diptych.vision.detectors.load import REGIONS, load_detector
from diptych.vision.detectors.weights import fingerprint, write_detector

KIND = "with-whole"


class WithImageFeature(NetworkDetector[nn.ModuleList]):
    """A detector that adds a feature of the whole image to the regions of the detector `regions`.

    This feature is the mean of the backbone's last feature map.
    """

    def __init__(self, regions: Detector, backbone: Backbone) -> None:
        self.regions, self.backbone = regions, backbone.eval()
        self.network = nn.ModuleList([self.backbone, *filter(None, [regions.network])])

    @property
    def contract(self) -> FeatureContract:
        inner = self.regions.contract
        return replace(
            inner,
            extractor=f"{inner.extractor}; whole: {self.backbone.name} at {self.backbone.side} pixels",
            weights=hashlib.sha256(f"{inner.weights} {self.fingerprint}".encode()).hexdigest(),
            whole=True,
            whole_size=self.backbone.width,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Return the sha256 of the backbone's weights."""
        return fingerprint(self.backbone)

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        regions = self.regions.detect(pictures if self.regions.needs_pictures else [], records)
        cells = zip(*self.backbone.maps_of(pictures), strict=True)
        return [replace(one, whole=_mean(*of)) for one, of in zip(regions, cells, strict=True)]

    def save(self, folder: Path) -> None:
        self.regions.save(folder / REGIONS)
        write_detector(folder, {"kind": KIND, **self.backbone.described}, self.backbone)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> WithImageFeature:
        return cls(load_detector(folder / REGIONS), Backbone.from_folder(folder, described))


def _mean(cells: Float[Tensor, "F h w"], share: Float[Tensor, "2"]) -> Float[Tensor, "F"]:
    """Average the cells of the map that overlap the image; all other cells show only padding.

    `share`: the share (x, y) of the square that the image covers.
    """
    columns, rows = (share.cpu() * torch.tensor([cells.shape[2], cells.shape[1]])).ceil().int().tolist()
    return cells[:, :rows, :columns].mean((1, 2)).cpu()
