"""Proposals of the official detectors beside plain loops over cells, anchors and boxes, at sizes that no set has.

The loops are written from the description of the three networks (Caffe's, detectron2's and Detectron's) and share
nothing with the code: maps of one cell and of one row, more proposals asked for than there are anchors, and fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
import torch

from diptych.vision.detectors.official.butd import ButdPipeline, ButdSettings
from diptych.vision.detectors.official.convert import convert
from diptych.vision.detectors.official.detector import OfficialDetector
from diptych.vision.detectors.official.prepare import Prepared
from diptych.vision.detectors.official.x101 import X101Pipeline, X101Settings
from tests.support.detector_files import butd_file, detectron_blobs

Box = tuple[float, float, float, float]
MOST = log(1000 / 16)
LIMITS = [
    {"before_nms": 6000, "after_nms": 300},
    {"before_nms": 7, "after_nms": 3},
    {"before_nms": 1, "after_nms": 1},
    {"before_nms": 10**6, "after_nms": 10**6, "proposal_overlap": 0.2},
]


@dataclass(frozen=True)
class Field:
    """What the three differ in: pixels that a side has beside x2 - x1, what a decoded end loses, the edge."""

    extent: int
    end: int
    edge: int
    clamped: bool
    drops_equal: bool

    def moved(self, box: Box, delta: list[float]) -> Box:
        w, h = box[2] - box[0] + self.extent, box[3] - box[1] + self.extent
        dw, dh = (min(d, MOST) if self.clamped else d for d in delta[2:])
        x, y = box[0] + w / 2 + delta[0] * w, box[1] + h / 2 + delta[1] * h
        w, h = w * exp(dw), h * exp(dh)
        return x - w / 2, y - h / 2, x + w / 2 - self.end, y + h / 2 - self.end

    def clipped(self, box: Box, height: int, width: int) -> Box:
        most = (width - self.edge, height - self.edge)
        x1, y1, x2, y2 = (max(0.0, min(value, most[at % 2])) for at, value in enumerate(box))
        return x1, y1, x2, y2

    def sides(self, box: Box) -> tuple[float, float]:
        return box[2] - box[0] + self.extent, box[3] - box[1] + self.extent

    def overlap(self, a: Box, b: Box) -> float:
        w = min(a[2], b[2]) - max(a[0], b[0]) + self.extent
        h = min(a[3], b[3]) - max(a[1], b[1]) + self.extent
        shared = max(w, 0.0) * max(h, 0.0)
        areas = [self.sides(box)[0] * self.sides(box)[1] for box in (a, b)]
        return shared / (sum(areas) - shared)

    def suppressed(self, ranked: list[tuple[float, Box]], threshold: float) -> list[tuple[float, Box]]:
        kept: list[tuple[float, Box]] = []
        for score, box in ranked:
            found = [self.overlap(box, better) for _, better in kept]
            if not any(o >= threshold if self.drops_equal else o > threshold for o in found):
                kept.append((score, box))
        return kept


CAFFE = Field(extent=1, end=0, edge=1, clamped=False, drops_equal=False)
PORT = Field(extent=0, end=0, edge=0, clamped=True, drops_equal=False)
DETECTRON = Field(extent=1, end=1, edge=1, clamped=True, drops_equal=True)


def ranked(found: list[tuple[float, Box]]) -> list[tuple[float, Box]]:
    return sorted(found, key=lambda one: -one[0])


def assert_same(boxes: torch.Tensor, scores: torch.Tensor, wanted: list[tuple[float, Box]]) -> None:
    assert len(boxes) == len(wanted)
    np.testing.assert_allclose(scores.numpy(), [score for score, _ in wanted], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(boxes.numpy(), np.reshape([box for _, box in wanted], (-1, 4)), rtol=1e-4, atol=1e-3)


def maps(rows: int, columns: int, logits: int, anchors: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    deltas = torch.randn(4 * anchors, rows, columns, generator=drawn) * 0.5
    return torch.randn(logits, rows, columns, generator=drawn) * 2, deltas


def prepared(height: int, width: int, scale: float) -> Prepared:
    return Prepared(torch.zeros(3, height, width), (scale, scale), (99, 99))


@cache
def network(kind: str) -> Any:
    done = convert(detectron_blobs() if kind == "x101" else butd_file(kind), None, "made up")
    return OfficialDetector.of(done.tensors, done.settings, (), "made up").network


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 9), (6, 4)])
def test_caffe_proposes_as_its_loops_do(rows: int, columns: int, limits: dict[str, Any]) -> None:
    anchors: list[Box] = []
    for ratio in (0.5, 1.0, 2.0):
        width = round(sqrt(256 / ratio))
        for size in (4, 8, 16, 32):
            w, h = width * size, round(width * ratio) * size
            anchors.append((7.5 - (w - 1) / 2, 7.5 - (h - 1) / 2, 7.5 + (w - 1) / 2, 7.5 + (h - 1) / 2))
    logits, deltas = maps(rows, columns, 24, 12, rows + columns)
    settings = replace(ButdSettings.usual("caffe"), **limits)
    net = network("caffe")
    assert net.anchors.tolist() == [list(one) for one in anchors]
    size, scale = (16 * rows + 5, 16 * columns + 3), 1.7
    found = []
    for y in range(rows):
        for x in range(columns):
            for a, base in enumerate(anchors):
                shifted = (base[0] + 16 * x, base[1] + 16 * y, base[2] + 16 * x, base[3] + 16 * y)
                box = CAFFE.clipped(CAFFE.moved(shifted, deltas[4 * a : 4 * a + 4, y, x].tolist()), *size)
                score = 1 / (1 + exp(float(logits[a, y, x] - logits[12 + a, y, x])))
                if min(CAFFE.sides(box)) >= 16 * scale:
                    found.append((score, box))
    wanted = CAFFE.suppressed(ranked(found)[: settings.before_nms], settings.proposal_overlap)[: settings.after_nms]
    told = ButdPipeline(net, settings).proposals(logits, deltas, prepared(*size, scale))
    assert_same(told.boxes, told.scores, wanted)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 1), (3, 5)])
def test_the_port_proposes_as_its_loops_do(rows: int, columns: int, limits: dict[str, Any]) -> None:
    anchors: list[Box] = []
    for size in (64.0, 128.0, 256.0, 512.0):
        for ratio in (0.5, 1.0, 2.0):
            w = sqrt(size**2 / ratio)
            anchors.append((-w / 2, -w * ratio / 2, w / 2, w * ratio / 2))
    logits, deltas = maps(rows, columns, 12, 12, 10 + rows)
    settings = replace(ButdSettings.usual("hf"), **limits)
    net = network("hf")
    np.testing.assert_allclose(net.anchors.numpy(), anchors, rtol=1e-5)
    size, found = (16 * rows, 16 * columns), []
    for y in range(rows):
        for x in range(columns):
            for a, base in enumerate(anchors):
                shifted = (base[0] + 16 * x, base[1] + 16 * y, base[2] + 16 * x, base[3] + 16 * y)
                box = PORT.clipped(PORT.moved(shifted, deltas[4 * a : 4 * a + 4, y, x].tolist()), *size)
                found.append((float(logits[a, y, x]), box))
    large = [one for one in ranked(found)[: settings.before_nms] if min(PORT.sides(one[1])) > 0]
    wanted = PORT.suppressed(large, settings.proposal_overlap)[: settings.after_nms]
    told = ButdPipeline(net, settings).proposals(logits, deltas, prepared(*size, 1.0))
    assert_same(told.boxes, told.scores, wanted)


@pytest.mark.parametrize("limits", [*LIMITS, {"least_side": 20.0, "anchor_size": 16.0, "anchor_ratios": (1.0, 3.0)}])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (32, 160)])
def test_detectron_proposes_as_its_loops_do(height: int, width: int, limits: dict[str, Any]) -> None:
    settings, scale = replace(X101Settings.usual(), **limits), 1.3
    levels, best = [], []
    for level in range(2, 7):
        step, count = 2**level, len(settings.anchor_ratios)
        rows, columns = (-(-side // step) for side in (height, width))
        logits, deltas = maps(rows, columns, count, count, level)
        levels.append((logits, deltas))
        found = []
        for y in range(rows):
            for x in range(columns):
                for a, ratio in enumerate(settings.anchor_ratios):
                    w = round(sqrt(step * step / ratio))
                    h, times = round(w * ratio), settings.anchor_size * 2 ** (level - 2) / step
                    half = ((w * times - 1) / 2, (h * times - 1) / 2)
                    x0, y0 = (step - 1) / 2 + step * x, (step - 1) / 2 + step * y
                    box = (x0 - half[0], y0 - half[1], x0 + half[0], y0 + half[1])
                    box = DETECTRON.clipped(
                        DETECTRON.moved(box, deltas[4 * a : 4 * a + 4, y, x].tolist()), height, width
                    )
                    found.append((1 / (1 + exp(-float(logits[a, y, x]))), box))
        large = []
        for score, box in ranked(found)[: settings.before_nms]:
            w, h = DETECTRON.sides(box)
            inside = box[0] + w / 2 < width and box[1] + h / 2 < height
            if min(w, h) >= settings.least_side * scale and min(w, h) > 0 and inside:
                large.append((score, box))
        best += DETECTRON.suppressed(large, settings.proposal_overlap)[: settings.after_nms]
    wanted = ranked(best)[: settings.after_nms]
    told = X101Pipeline(network("x101"), settings).proposals(levels, prepared(height, width, scale))
    assert_same(told.boxes, told.scores, wanted)
