"""Unified VLP's detector against Detectron's code: anchors, levels and choice, which need no weights."""

import pytest

from diptych.vision.detectors.official.boxes import DETECTRON
from diptych.vision.detectors.official.choice import ByClass
from diptych.vision.detectors.official.x101 import FIRST, LAST, X101Settings, levels_of
from tests.parity.detector_sets import OUTPUTS, SELECTION, Golden, cases, near, under

pytestmark = pytest.mark.parity


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "anchors2"))
def test_vlp_x101_anchors(folder, prefix):
    settings = X101Settings.usual()
    for level in range(FIRST, LAST + 1):
        size = settings.anchor_size * 2 ** (level - FIRST)
        ours = DETECTRON.anchors(2**level, (size,), settings.anchor_ratios)
        assert ours.tolist() == Golden(folder).outputs[f"anchors{level}"].tolist()


@pytest.mark.parametrize(("folder", "prefix"), cases("vlp_x101", OUTPUTS, "levels_table.boxes"))
def test_vlp_x101_levels(folder, prefix):
    table = under(Golden(folder).outputs, "levels_table")
    assert levels_of(table["boxes"]).tolist() == table["levels"].tolist()


@pytest.mark.parametrize(("folder", "case"), cases("vlp_x101", SELECTION, "least_most", "probabilities"))
def test_vlp_x101_choice_alone(folder, case):
    given, config = under(Golden(folder).selection, case), Golden(folder).config
    rule = ByClass(*given["least_most"].tolist(), config["confidence"], True, config["TEST.NMS"], DETECTRON)
    boxes = given["boxes_of_each_class"].unflatten(1, (-1, 4))
    chosen = rule.choose(boxes, given["probabilities"])
    assert chosen.rows.tolist() == given["kept"].tolist()
    assert chosen.classes[chosen.rows].tolist() == given["kept_classes"].tolist()
    near(chosen.scores[chosen.rows], given["kept_scores"], 0)
    near(boxes[chosen.rows, chosen.classes[chosen.rows]], given["kept_boxes"], 0)
