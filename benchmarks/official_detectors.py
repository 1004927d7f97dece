"""Measure images per second of the official detectors at full size with random weights, against their networks alone.

    uv run python -m benchmarks.official_detectors

An image has 640 x 480 pixels, as in COCO. Bottom-up attention scales it to 600 x 800 and has 300 proposals; Unified
VLP's detector scales it to 608 x 800 and has 1,000. `whole` is the way from the image to its regions. `network` is the
same network on as many boxes, without preparing the image, proposing and selecting. Seconds are CPU seconds of one
core, so other work on the machine changes little. Takes about a minute. Writes
benchmarks/results/official_detectors.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.machine import save_result
from diptych.vision.detectors.official.butd import Butd, ButdPipeline, ButdSettings, ButdShape
from diptych.vision.detectors.official.detector import OfficialDetector
from diptych.vision.detectors.official.regions import OfficialSettings, rois_of
from diptych.vision.detectors.official.resnet import ResNetShape, ResNetStage
from diptych.vision.detectors.official.x101 import X101, X101Pipeline, X101Settings, X101Shape, levels_of

BLOCKS, READ, OUT = (3, 4, 23, 3), (64, 256, 512, 1024), (256, 512, 1024, 2048)
SHARP = 30.0  # scales the logits, so that a few dozen boxes pass 0.2, as with trained weights
LAYOUTS = {
    f"{kind}, {layout}": (memory, kind == "bfloat16")
    for kind in ("float32", "bfloat16")
    for layout, memory in (("channels last", torch.channels_last), ("channels first", torch.contiguous_format))
}
WARM = 96  # pixels of the image for the warm-up


def trunk(groups: int, inner: tuple[int, ...]) -> ResNetShape:
    stages = zip(BLOCKS, READ, inner, OUT, strict=True)
    return ResNetShape(
        64, tuple(ResNetStage(blocks, read, width, out, groups, True) for blocks, read, width, out in stages)
    )


def bottom_up() -> ButdPipeline:
    net = Butd(ButdShape(trunk(1, (64, 128, 256, 512)), 512, 12, 24, 1601, 401, 256, 512))
    pipeline = ButdPipeline(net, ButdSettings.usual("caffe"))
    net.anchors.copy_(pipeline.convention.anchors(16, (64.0, 128.0, 256.0, 512.0), (0.5, 1.0, 2.0)))
    return pipeline


def x101() -> X101Pipeline:
    settings = replace(X101Settings.usual(), before_nms=1000, after_nms=1000)  # values of the baseline's YAML file
    net = X101(X101Shape(trunk(64, (256, 512, 1024, 2048)), 256, 3, 7, 2048, 2048, 1601))
    return X101Pipeline(net, settings)


@torch.no_grad()
def network_alone(pipeline: Any, images: Tensor, boxes: Tensor) -> None:
    """Run the trunk and the heads on `boxes` in each image."""
    net, each = pipeline.network, [boxes] * len(images)
    if isinstance(pipeline, ButdPipeline):
        maps = net.maps(images)
        net.propose(maps)
        net.heads(net.describe(maps, each))
        return
    maps = net.pyramid(net.trunk(images)[1:])
    for level in maps:
        net.propose(level)
    rois = rois_of(each)
    net.heads(net.pooled(maps, rois, levels_of(rois[:, 1:]), pipeline.settings.samples))


def rate(work: Callable[[], object]) -> dict[str, float]:
    began = time.process_time()
    work()
    return {"pictures_per_second": round(1 / (time.process_time() - began), 4)}


def layouts(pipeline: Any) -> dict[str, float]:
    """Time the trunk with channels first and last, in fp32 and bf16, in turn."""
    net, best = pipeline.network, dict.fromkeys(LAYOUTS, 0.0)
    for _ in range(4):
        for name, (layout, short) in LAYOUTS.items():
            net.to(memory_format=layout)
            image = torch.randn(1, 3, 320, 416).contiguous(memory_format=layout) * 50
            trunk_alone = net.maps if isinstance(net, Butd) else net.trunk
            with torch.autocast("cpu", torch.bfloat16, enabled=short):
                best[name] = max(best[name], rate(partial(trunk_alone, image))["pictures_per_second"])
    return best


@torch.no_grad()
def measured(pipeline: Any, picture: Tensor) -> dict[str, Any]:
    net = pipeline.network
    settings: OfficialSettings = pipeline.settings
    net.classes.weight.mul_(SHARP)
    detector = OfficialDetector(pipeline)
    prepared = pipeline.prepare(picture)
    last = prepared.image[None].contiguous(memory_format=torch.channels_last)
    corners = torch.rand(settings.after_nms, 2) * torch.tensor([prepared.size[1], prepared.size[0]]) * 0.7
    boxes = torch.cat([corners, corners + 40 + torch.rand(settings.after_nms, 2) * 150], 1)
    network_alone(pipeline, last[..., :WARM, :WARM], boxes[:2] / 10)
    figures: dict[str, Any] = {"size": list(prepared.size), "proposals": settings.after_nms}
    figures["whole"] = rate(lambda: detector.find([picture]))
    figures["network"] = rate(lambda: network_alone(pipeline, last, boxes))
    pipeline.settings = replace(settings, precision="bfloat16")
    figures["whole, bfloat16"] = rate(lambda: detector.find([picture]))
    figures["trunk at 320 x 416, fastest of four"] = layouts(pipeline)
    return figures


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    picture = torch.randint(0, 256, (3, 480, 640), dtype=torch.uint8)
    figures = {
        "bottom-up attention (caffe)": measured(bottom_up(), picture),
        "Unified VLP's": measured(x101(), picture),
    }
    print(save_result("official_detectors", "uv run python -m benchmarks.official_detectors", figures))
    print(figures)


if __name__ == "__main__":
    main()
