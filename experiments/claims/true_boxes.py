"""Make a store whose regions are the true boxes of drawn scenes, with features of the demo's detector.

    uv run python -m experiments.claims.true_boxes runs/world demo/detector/detector runs/true

VL-BERT (Table 4) compares true boxes with detected ones. The features of both stores come from the same network, so
only the boxes differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from diptych.core import FeatureContract, Record, Regions
from diptych.data.extract.extract import extract
from diptych.data.extract.own_data import read_records
from diptych.runtime.terminal import make_console
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.load import load_detector
from diptych_world.detector.detector import StorybookDetector


class AtTrueBoxes(StorybookDetector):
    """A detector that returns features at the true boxes of a record's objects, and detects no boxes itself."""

    @property
    def contract(self) -> FeatureContract:
        return replace(super().contract, selection="true boxes")

    @torch.no_grad()
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if not pictures:
            return []
        squares, shares = letterbox(pictures, self.network.shape.side, self.device)
        found = []
        with torch.autocast(self.device.type, torch.bfloat16):
            for square, share, picture, record in zip(squares, shares, pictures, records, strict=True):
                maps = self.network(square[None])
                boxes = torch.tensor([thing.box for thing in record.objects]).reshape(1, -1, 4)
                features = self.network.describe(maps, boxes * share.repeat(2))
                found.append(
                    Regions(
                        boxes=boxes[0],
                        scores=torch.ones(boxes.shape[1]),
                        size=(picture.shape[2], picture.shape[1]),
                        classes=self.network.region_heads["kind"](features)[0].float().softmax(1),
                        features=features[0].float(),
                        whole=maps.whole[0].float(),
                    )
                )
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path, help="folder that diptych storybook write --out made")
    parser.add_argument("detector", type=Path, help="folder of the trained detector")
    parser.add_argument("store", type=Path)
    given = parser.parse_args()
    detector = load_detector(given.detector)
    if not isinstance(detector, StorybookDetector):
        raise SystemExit(f"{given.detector} has another kind of detector; pass demo/detector/detector of diptych demo")
    records = read_records(given.world, make_console(), None, None, 0)
    print(extract(records, AtTrueBoxes(detector.network, detector.selection), given.store).summary())


if __name__ == "__main__":
    main()
