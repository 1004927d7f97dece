"""Images and records of proposers' tests."""

from __future__ import annotations

from pathlib import Path

import torch

from diptych.core import Record
from diptych.vision.backbones.backbone import Backbone

SQUARE = torch.randint(0, 256, (3, 48, 48), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


WIDE = torch.randint(0, 256, (3, 40, 80), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


RECORDS = [Record("a"), Record("b")]


def grid_folder(folder: Path) -> Path:
    """A backbone of local weights, as a detector folder."""
    torch.manual_seed(0)
    from diptych.vision.detectors.grid import Grid

    Grid(Backbone.of("timm/test_resnet", 64, pretrained=False)).save(folder)
    return folder
