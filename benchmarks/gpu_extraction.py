"""The stage `extraction` of benchmarks.gpu: images per second from files to a store, with the official detectors.

Images are JPEG of 640 x 480. `decoding alone` is the whole extraction with a detector that computes nothing: the images
are opened by the same processes, passed on, and one region is written. `network alone` starts from prepared images and
boxes on the device; it neither proposes nor selects boxes. Weights are random, which does not change the time. Needs
torchvision.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from benchmarks.official_detectors import SHARP, bottom_up, network_alone, x101
from diptych.core import FeatureContract, Record, Regions
from diptych.data.extract.extract import extract
from diptych.vision.detectors.detector import Detector, Picture, computing_on
from diptych.vision.detectors.official.detector import AT_ONCE, OfficialDetector
from diptych.vision.detectors.official.prepare import Prepared

MADE = {"bottom-up attention": bottom_up, "Unified VLP's": x101}
TINY: dict[str, Any] = {"shorter": 64, "longer": 96, "before_nms": 20, "after_nms": 8, "least": 2, "most": 4}


class LooksAtNothing:
    """A detector that returns one region with one feature for each image, without computing anything."""

    needs_pictures = True
    network: nn.Module | None = None
    contract = FeatureContract("nothing", "", 1)

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        box, one = torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1)
        return [Regions(box, one, (p.shape[2], p.shape[1]), features=one[None]) for p in pictures]

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def photographs(folder: Path, count: int, width: int, height: int) -> list[Record]:
    """Write JPEG files about as large as photographs, of smoothed noise; return their records."""
    records = []
    for number in range(count):
        drawn = torch.Generator().manual_seed(number)
        rough = torch.randint(0, 256, (height // 8, width // 8, 3), generator=drawn, dtype=torch.uint8)
        Image.fromarray(rough.numpy()).resize((width, height), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg")
        records.append(Record(f"{number}.jpg", image=folder / f"{number}.jpg"))
    return records


def extraction(device: torch.device, processes: int, tiny: bool) -> dict[str, Any]:
    """Return images per second for each detector and part."""
    figures: dict[str, Any] = {"processes": processes}
    with tempfile.TemporaryDirectory() as root:
        size = (64, 48) if tiny else (640, 480)
        records = photographs(Path(root), 4 if tiny else 512, *size)
        whole = partial(_rate, records, Path(root), device, processes)
        figures["decoding alone"] = whole("decoding", LooksAtNothing())
        for name, make in MADE.items():
            for precision in ("bfloat16",) if tiny else ("float32", "bfloat16"):
                pipeline: Any = make()
                pipeline.settings = replace(pipeline.settings, precision=precision, **(TINY if tiny else {}))
                with torch.no_grad():
                    pipeline.network.classes.weight.mul_(SHARP)
                detector = OfficialDetector(pipeline)
                with computing_on(detector, device):
                    alone = _network_alone(detector, size, device, 1 if tiny else 20)
                    detector.detect([torch.zeros(3, size[1], size[0], dtype=torch.uint8)] * AT_ONCE, [])
                figures[f"{name}, {precision}"] = {
                    "files to a store": whole(f"{name} {precision}", detector), "network alone": alone
                }  # fmt: skip
    return figures


def _rate(records: Sequence[Record], root: Path, device: torch.device, processes: int, to: str, by: Detector) -> float:
    began = time.perf_counter()
    apart = processes if device.type != "cpu" else 1  # on a CPU, several processes would each run the detector
    done = extract(records, by, root / to, 16, processes=apart, device=device)
    assert done.written == len(records), done.failed
    return round(len(records) / (time.perf_counter() - began), 2)


def _network_alone(detector: OfficialDetector, size: tuple[int, int], device: torch.device, rounds: int) -> float:
    pipeline = detector.pipeline
    prepared: Prepared = pipeline.prepare(torch.zeros(3, size[1], size[0], dtype=torch.uint8, device=device))
    images = torch.stack([prepared.image] * AT_ONCE).contiguous(memory_format=torch.channels_last)
    height, width = prepared.size
    corners = torch.rand(pipeline.settings.after_nms, 2) * torch.tensor([width, height]) * 0.7
    boxes = torch.cat([corners, corners + 8 + torch.rand(len(corners), 2) * 0.3 * min(width, height)], 1).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=pipeline.settings.precision == "bfloat16"):
        network_alone(pipeline, images, boxes)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(rounds):
            network_alone(pipeline, images, boxes)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return round(rounds * AT_ONCE / (time.perf_counter() - began), 2)
