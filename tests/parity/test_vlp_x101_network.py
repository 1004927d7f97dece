"""Unified VLP's detector against Detectron's code, stage by stage (meta.json of the sets says what was run).

conftest.py leaves this file out where no set has weights; the committed one has none.
"""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diptych.vision.detectors.official.detector import OfficialDetector
from diptych.vision.detectors.official.regions import rois_of
from diptych.vision.detectors.official.x101 import FIRST, LAST, X101Pipeline, levels_of
from tests.parity.detector_sets import OUTPUTS, Golden, cases, close, mirrored_and_same, near, vlp

pytestmark = pytest.mark.parity
MAPS, HEADS, BOXES, SCORES = 1e-4, 1e-3, 5e-3, 1e-3  # shares of the largest value, pixels, and as they are
LEVELS = range(FIRST, LAST + 1)
golden = cache(Golden)


@cache
def detector(folder: Path) -> OfficialDetector:
    return vlp(golden(folder))


def opened(folder: Path, prefix: str) -> tuple[OfficialDetector, X101Pipeline, dict[str, Tensor]]:
    found = detector(folder)
    assert isinstance(found.pipeline, X101Pipeline)
    return found, found.pipeline, golden(folder).of(prefix)


@cache
def computed(folder: Path, prefix: str) -> tuple[list[Tensor], list[Tensor]]:
    """Our stem and stages, and our pyramid."""
    _, pipeline, _ = opened(folder, prefix)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    stages = pipeline.network.trunk(prepared.image[None])
    return stages, pipeline.network.pyramid(stages[1:])


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "im_info", "scale"))
def test_vlp_x101_picture(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    assert prepared.size == tuple(theirs["im_info"][:2].int().tolist())
    assert prepared.scale[0] == pytest.approx(theirs["scale"].item(), rel=1e-12)
    if "image" in theirs:
        near(prepared.image, theirs["image"], 1e-4)


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "fpn5"))
def test_vlp_x101_maps(folder, prefix):
    """Of wide maps the first channels are kept."""
    _, _, theirs = opened(folder, prefix)
    stages, pyramid = computed(folder, prefix)
    ours = {"stem": stages[0]} | {f"res{n}": stage for n, stage in enumerate(stages[1:], 2)}
    ours |= {f"fpn{n}": level for n, level in enumerate(pyramid, 2)}
    kept = [name for name in theirs if re.fullmatch(r"stem|res\d|fpn\d", name)]
    assert kept
    for name in kept:
        close(ours[name][0, : len(theirs[name])], theirs[name], MAPS, name)


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, *(f"proposals{n}" for n in LEVELS)))
def test_vlp_x101_proposals(folder, prefix):
    """Of each map, from their logits and deltas where they are kept; then the best of all, and where each is read."""
    _, pipeline, theirs = opened(folder, prefix)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    found = []
    for level in LEVELS:
        ours = pipeline.network.propose(computed(folder, prefix)[1][level - FIRST])
        kept = [theirs.get(f"rpn_{name}{level}") for name in ("logits", "deltas")]
        for mine, own in zip(ours, kept, strict=True):
            if own is not None:
                close(mine[0], own, MAPS, f"P{level}")
        logits, deltas = (mine[0] if own is None else own for mine, own in zip(ours, kept, strict=True))
        found.append((logits, deltas))
        proposals = pipeline.proposals_of(level, logits, deltas, prepared)
        near(proposals.boxes, theirs[f"proposals{level}"], BOXES, f"P{level}")
        near(proposals.scores, theirs[f"proposal_scores{level}"], SCORES, f"P{level}")
    near(pipeline.proposals(found, prepared).boxes, theirs["proposals"], BOXES)
    assert levels_of(theirs["proposals"]).tolist() == theirs["levels"].tolist()


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "fc6", "fc7", "class_logits", "box_deltas"))
def test_vlp_x101_heads(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    pooled = pipeline.network.pooled(
        computed(folder, prefix)[1], rois_of([theirs["proposals"]]), theirs["levels"], pipeline.settings.samples
    )
    close(pooled[: len(theirs["roi_align_first"])], theirs["roi_align_first"], HEADS, "RoIAlign")
    for ours, name in zip(pipeline.network.heads(pooled), ("fc6", "fc7", "class_logits", "box_deltas"), strict=True):
        close(ours, theirs[name], HEADS, name)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    refined = pipeline.refined(prepared, theirs["proposals"], theirs["box_deltas"])
    near(refined.flatten(1), theirs["refined_boxes"], BOXES)


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "kept", "kept_features"))
def test_vlp_x101_whole(folder, prefix):
    """From the picture to the rows of the published files; nothing of theirs in between."""
    found, _, theirs = opened(folder, prefix)
    (ours,) = found.find([golden(folder).picture(prefix)])
    assert ours.rows.tolist() == theirs["kept"].tolist()
    assert ours.classes.tolist() == theirs["kept_classes"].tolist()
    near(ours.boxes, theirs["kept_boxes"], 2 * BOXES)  # theirs are as far from float64 as ours
    near(ours.scores, theirs["kept_scores"], SCORES)
    near(ours.probabilities, theirs["kept_class_probabilities"], SCORES)
    close(ours.features, theirs["kept_features"], HEADS)
    row = torch.cat([ours.boxes, ours.classes[:, None].float(), ours.scores[:, None]], 1)
    near(row, theirs["h5_bbox_row"], 2 * BOXES)


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "kept", "kept_features"))
def test_vlp_x101_together_as_alone(folder, prefix):
    found, _, theirs = opened(folder, prefix)
    together = found.find(list(mirrored_and_same(golden(folder).picture(prefix))))
    assert together[0].rows.tolist() == theirs["kept"].tolist()
    close(together[0].features, theirs["kept_features"], HEADS)
