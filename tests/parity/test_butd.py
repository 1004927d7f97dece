"""Bottom-up attention in both dialects against the authors' code, stage by stage (meta.json of the sets says which)."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diptych.vision.detectors.official.boxes import CAFFE, DETECTRON2
from diptych.vision.detectors.official.butd import ANCHOR_RATIOS, ANCHOR_SIZES, STRIDE, ButdPipeline
from diptych.vision.detectors.official.choice import BestOfAll, ByClass
from diptych.vision.detectors.official.detector import OfficialDetector
from diptych.vision.detectors.official.regions import rois_of
from tests.parity.detector_sets import OUTPUTS, SELECTION, Golden, butd, cases, close, mirrored_and_same, near, under

pytestmark = pytest.mark.parity
MAPS, BOXES, SCORES = 1e-4, 2e-3, 1e-4  # a share of the largest value, pixels, and as they are
golden = cache(Golden)


@cache
def detector(folder: Path, dialect: str) -> OfficialDetector:
    return butd(golden(folder), dialect)


def opened(folder: Path, prefix: str) -> tuple[OfficialDetector, ButdPipeline, dict[str, Tensor]]:
    found = detector(folder, prefix.partition(".")[0])
    assert isinstance(found.pipeline, ButdPipeline)
    return found, found.pipeline, golden(folder).of(prefix)


def image_of(folder: Path, prefix: str) -> Tensor:
    """(1, 3, h, w). Ours, where theirs is not kept."""
    _, pipeline, theirs = opened(folder, prefix)
    found = theirs["image"] if "image" in theirs else pipeline.prepare(golden(folder).picture(prefix)).image
    return found[None]


def background_last(rows: Tensor, prefix: str) -> Tensor:
    return rows.roll(-1, 1) if prefix.startswith("hf") else rows


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "image"))
def test_butd_picture(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    near(prepared.image, theirs["image"], 1e-4)
    if "scale" in theirs:
        assert prepared.scale[0] == pytest.approx(theirs["scale"].item(), rel=1e-12)
    else:
        assert prepared.size == tuple(theirs["size"].tolist())
        near(1 / torch.tensor(prepared.scale[::-1]), theirs["scales_yx"], 1e-6)


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "stem"))
def test_butd_stem(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    close(pipeline.network.pooled_stem(image_of(folder, prefix))[0], theirs["stem"], MAPS)


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "c4", "rpn_logits", "rpn_deltas"))
def test_butd_maps(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    maps = pipeline.network.maps(image_of(folder, prefix))
    close(maps[0], theirs["c4"], MAPS, "c4")
    logits, deltas = pipeline.network.propose(theirs["c4"][None])
    close(logits[0], theirs["rpn_logits"], MAPS, "logits")
    close(deltas[0], theirs["rpn_deltas"], MAPS, "deltas")


@pytest.mark.parametrize(("folder", "dialect"), cases("butd", OUTPUTS, "anchors_of_one_cell"))
def test_butd_anchors(folder, dialect):
    theirs = golden(folder).outputs[f"{dialect}.anchors_of_one_cell"]
    convention = {"caffe": CAFFE, "hf": DETECTRON2}[dialect]
    near(convention.anchors(STRIDE, ANCHOR_SIZES, ANCHOR_RATIOS), theirs, 1e-4)
    near(opened(folder, dialect)[1].network.anchors, theirs, 1e-4)


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "proposals", "rpn_logits", "rpn_deltas"))
def test_butd_proposals(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    found = pipeline.proposals(theirs["rpn_logits"], theirs["rpn_deltas"], prepared)
    near(found.boxes, theirs["proposals"], BOXES)
    scores = "proposal_scores" if "proposal_scores" in theirs else "proposal_logits"
    near(found.scores, theirs[scores], SCORES)
    if "rpn_fg_probability" in theirs:
        near(pipeline.scores(theirs["rpn_logits"]).permute(2, 0, 1), theirs["rpn_fg_probability"], SCORES)


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "pooled_first", "c4", "proposals"))
def test_butd_pooling(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    rois = rois_of([theirs["proposals"][: len(theirs["pooled_first"])]])
    close(pipeline.network.pooled(theirs["c4"][None], rois), theirs["pooled_first"], MAPS)


@pytest.mark.parametrize(
    ("folder", "prefix"), cases("butd", OUTPUTS, "roi_features", "c4", "proposals", "class_logits", "attribute_logits")
)
def test_butd_features_and_logits(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    close(pipeline.network.describe(theirs["c4"][None], [theirs["proposals"]]), theirs["roi_features"], MAPS)
    classes, attributes, moves = pipeline.network.heads(theirs["roi_features"])
    close(background_last(classes, prefix), theirs["class_logits"], MAPS, "classes")
    assert attributes is not None
    close(background_last(attributes, prefix), theirs["attribute_logits"], MAPS, "attributes")
    close(moves[:, 4:] if prefix.startswith("hf") else moves, theirs["box_deltas"], MAPS, "deltas")


@pytest.mark.parametrize(
    ("folder", "prefix"),
    cases("butd", OUTPUTS, "refined_boxes", "proposals", "box_deltas")
    + cases("butd", OUTPUTS, "regressed_boxes_raw", "proposals", "box_deltas"),
)
def test_butd_boxes_of_classes(folder, prefix):
    _, pipeline, theirs = opened(folder, prefix)
    prepared = pipeline.prepare(golden(folder).picture(prefix))
    found = pipeline.refined(prepared, theirs["proposals"], theirs["box_deltas"])
    if "refined_boxes" in theirs:
        near(found.flatten(1), theirs["refined_boxes"], BOXES)
    else:  # im_detect clips them
        width, height = prepared.picture
        near(CAFFE.clip(found, height, width).flatten(1), theirs["regressed_boxes_raw"], BOXES)


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "kept", "kept_features"))
def test_butd_whole(folder, prefix):
    """From the picture to the regions, their order, classes and attributes; nothing of theirs in between."""
    found, _, theirs = opened(folder, prefix)
    (ours,) = found.find([golden(folder).picture(prefix)])
    assert ours.rows.tolist() == theirs["kept"].tolist()
    near(ours.boxes, theirs["kept_boxes"], 3 * BOXES)
    close(ours.features, theirs["kept_features"], MAPS)
    assert ours.attributes is not None
    assert ours.attribute_scores is not None
    near(ours.attribute_scores, theirs["kept_attribute_scores"], SCORES)
    none = 1 if prefix.startswith("hf") else 0  # the port does not count the background and `none`
    kind = "classes" if none else "objects"
    assert (ours.classes - none).tolist() == theirs[f"kept_{kind}"].tolist()
    assert (ours.attributes - none).tolist() == theirs["kept_attributes"].tolist()
    near(ours.scores, theirs["kept_scores" if none else "kept_object_scores"], SCORES)


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "kept_boxes_normalized"))
def test_butd_regions(folder, prefix):
    found, _, theirs = opened(folder, prefix)
    picture = golden(folder).picture(prefix)
    (regions,) = found.detect([picture], [])
    near(regions.boxes, theirs["kept_boxes_normalized"], 1e-4)
    assert regions.size == (picture.shape[2], picture.shape[1])
    assert regions.classes is not None
    assert (regions.classes[:, 1:].argmax(1)).tolist() == theirs["kept_classes"].tolist()


@pytest.mark.parametrize(("folder", "prefix"), cases("butd", OUTPUTS, "kept", "kept_features"))
def test_butd_together_as_alone(folder, prefix):
    found, _, theirs = opened(folder, prefix)
    pictures = list(mirrored_and_same(golden(folder).picture(prefix)))
    for one, alone in zip(found.find(pictures), [found.find([picture])[0] for picture in pictures], strict=True):
        assert one.rows.tolist() == alone.rows.tolist()
        close(one.features, alone.features, MAPS)
    assert found.find(pictures)[0].rows.tolist() == theirs["kept"].tolist()


@pytest.mark.parametrize(("folder", "case"), cases("butd", SELECTION, "least_most", "probabilities"))
def test_butd_choice_alone(folder, case):
    sets = golden(folder).selection
    given, config = under(sets, case), golden(folder).config
    least, most = given["least_most"].tolist()
    rule = ByClass(least, most, config["caffe_confidence"], False, config["caffe_nms"], CAFFE)
    assert rule.choose(given["boxes"], given["probabilities"]).rows.tolist() == given["kept"].tolist()
    of_port = {name: rows for name, rows in sets.items() if name.startswith(f"maxnms.{case.partition('.')[2]}.")}
    assert of_port
    boxes = given["boxes"][:, None].expand(-1, given["probabilities"].shape[1], -1)
    for name, rows in of_port.items():
        overlap = float(name.removesuffix(".kept").split(".", 2)[2])
        chosen = BestOfAll(1, most, (overlap,)).choose(boxes, given["probabilities"])
        assert chosen.rows.tolist() == rows.tolist(), name
