"""The official detectors beside their parity tests: boxes by hand, choice, settings, folders."""

import math

import pytest
import torch
from torch import Tensor

from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems import find_selection
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.official.boxes import CAFFE, DETECTRON, DETECTRON2, by_anchor, shifted
from diptych.vision.detectors.official.cfg import cfg_values, number, numbers
from diptych.vision.detectors.official.choice import BestOfAll, ByClass
from diptych.vision.detectors.official.convert import convert
from diptych.vision.detectors.official.detector import OfficialDetector, with_settings
from diptych.vision.detectors.official.prepare import by_factor, by_size
from diptych.vision.detectors.open import open_detector
from tests.support.detector_files import CFG, butd_file, detectron_blobs

BOX = torch.tensor([[10.0, 20.0, 29.0, 59.0]])  # 20 x 40 with the last pixel, 19 x 39 without
SMALL = {"shorter": 96, "longer": 160, "after_nms": 30, "most": 12, "least": 4}


def butd(dialect: str = "caffe", attributes: int = 5, **settings: object) -> OfficialDetector:
    done = convert(butd_file(dialect, attributes=attributes), None, "made up")
    return OfficialDetector.of(done.tensors, with_settings(done.settings, {**SMALL, **settings}), (), "made up")


def x101(**settings: object) -> OfficialDetector:
    done = convert(detectron_blobs(), CFG, "made up")
    return OfficialDetector.of(done.tensors, with_settings(done.settings, settings), (), "made up")


@pytest.mark.parametrize(
    ("convention", "still", "twice"),
    [
        (CAFFE, [10, 20, 30, 60], [0, 20, 40, 60]),
        (DETECTRON, [10, 20, 29, 59], [0, 20, 39, 59]),
        (DETECTRON2, [10, 20, 29, 59], [0.5, 20, 38.5, 59]),
    ],
)
def test_the_three_conventions_decode(convention, still, twice):
    wider = torch.tensor([[0.0, 0.0, math.log(2), 0.0]])
    assert convention.decode(BOX, torch.zeros(1, 4)).tolist() == [still]
    torch.testing.assert_close(convention.decode(BOX, wider), torch.tensor([twice], dtype=torch.float32))
    weighted = convention.decode(BOX, wider * torch.tensor([10.0, 10.0, 5.0, 5.0]), (10.0, 10.0, 5.0, 5.0))
    torch.testing.assert_close(weighted, torch.tensor([twice], dtype=torch.float32))


def test_the_three_conventions_clip_and_limit():
    far = torch.tensor([[-5.0, -5.0, 500.0, 500.0]])
    assert CAFFE.clip(far, 50, 100).tolist() == DETECTRON.clip(far, 50, 100).tolist() == [[0, 0, 99, 49]]
    assert DETECTRON2.clip(far, 50, 100).tolist() == [[0, 0, 100, 50]]
    huge = torch.tensor([[0.0, 0.0, 9.0, 0.0]])
    assert DETECTRON2.sides(DETECTRON2.decode(BOX, huge))[0, 0] == pytest.approx(19 * 1000 / 16)
    assert CAFFE.decode(BOX, huge)[0, 2] > 20 * 1000


def test_nms_counts_the_last_pixel_where_it_is_covered():
    """Side by side, 10 pixels each and 4 shared: IoU 4 / 16 with the last pixel, 3 / 15 without."""
    boxes, scores = torch.tensor([[0.0, 0, 9, 9], [6, 0, 15, 9]]), torch.tensor([0.9, 0.8])
    for convention, kept in ((CAFFE, 1), (DETECTRON, 1), (DETECTRON2, 2)):
        assert len(convention.nms(boxes, scores, 0.22)) == kept
    # An overlap of a quarter, exactly: Detectron alone drops at the threshold.
    assert [len(one.nms(boxes, scores, 0.25)) for one in (CAFFE, DETECTRON)] == [2, 1]


def test_anchors_go_over_the_cells_by_row_column_anchor():
    cell = torch.tensor([[0.0, 0, 1, 1], [0, 0, 2, 2]])
    places = shifted(cell, (2, 3), 16)
    assert places[:, 0].tolist() == [0, 0, 16, 16, 32, 32, 0, 0, 16, 16, 32, 32]
    assert places[6:8, 1].tolist() == [16, 16]
    deltas = torch.arange(2 * 4 * 6.0).view(8, 2, 3)
    assert by_anchor(deltas)[3].tolist() == deltas[4:, 0, 1].tolist()  # the second anchor of the second cell


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_choice_by_class_is_that_of_all_classes(seed, strict):
    """It looks at likely classes first; here all are gone through, one by one."""
    random = torch.Generator().manual_seed(seed)
    corner = torch.rand(40, 5, 2, generator=random) * 60
    boxes = torch.cat([corner, corner + 5 + torch.rand(40, 5, 2, generator=random) * 40], -1)
    sharp = (torch.randn(40, 5, generator=random) * (1 + seed)).softmax(1)
    best, kinds = torch.zeros(40), torch.zeros(40, dtype=torch.long)
    for kind in range(1, 5):
        for row in DETECTRON.nms(boxes[:, kind], sharp[:, kind], 0.4):
            if sharp[row, kind] > best[row]:
                best[row], kinds[row] = sharp[row, kind], kind
    for least, most in ((0, 40), (20, 20), (30, 40), (0, 3)):
        chosen = ByClass(least, most, 0.3, strict, 0.4, DETECTRON).choose(boxes, sharp)
        confident = (best > 0.3).nonzero()[:, 0].tolist()
        ranked = best.argsort(descending=True, stable=True).tolist()
        count = len(confident)
        wanted = confident if least <= count <= most else ranked[: least if count < least else most]
        assert chosen.rows.tolist() == wanted
        assert chosen.classes[wanted].tolist() == kinds[wanted].tolist()
        torch.testing.assert_close(chosen.scores[wanted], best[wanted])


def test_overlaps_are_tried_until_enough_are_left():
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60]])[:, None].expand(-1, 2, -1)
    classes = torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])
    assert BestOfAll(2, 9, (0.5, 0.9)).choose(boxes, classes).rows.tolist() == [0, 2]
    assert BestOfAll(3, 9, (0.5, 0.9)).choose(boxes, classes).rows.tolist() == [0, 1, 2]
    assert BestOfAll(9, 9, (0.5, 0.6)).choose(boxes, classes).rows.tolist() == [0, 2]  # never enough: the last


def test_a_picture_is_resized_by_its_shorter_side_and_no_further_than_the_longer():
    assert by_factor(torch.zeros(3, 50, 100, dtype=torch.uint8), 600, 1000).size == (500, 1000)
    assert by_factor(torch.zeros(3, 480, 640, dtype=torch.uint8), 600, 1000).size == (600, 800)
    assert by_factor(torch.zeros(3, 480, 640, dtype=torch.uint8), 600, 1000, 32).size == (608, 800)
    assert by_size(torch.zeros(3, 480, 640, dtype=torch.uint8), 800, 1333).size == (800, 1067)
    padded = by_factor(torch.full((3, 20, 20), 255, dtype=torch.uint8), 20, 40, 32).image
    assert padded[:, 20:].abs().sum() == padded[:, :, 20:].abs().sum() == 0


def test_settings_of_detectron_are_read_under_their_sections():
    values = cfg_values(
        "!!python/object/new:utils.collections.AttrDict\ndictitems:\n"
        "  TEST: !!python/object/new:utils.collections.AttrDict\n    dictitems:\n"
        "      BBOX_AUG: !!python/object/new:utils.collections.AttrDict\n"
        "        dictitems: {MAX_SIZE: 4000, SCALES: !!python/tuple [],\n          ENABLED: false}\n"
        "      MAX_SIZE: 1000\n      SCALES: !!python/tuple\n      - 600\n      - 700\n      NMS: &id001 0.5\n"
        "    state: {__immutable__: true}\n"
        "  TRAIN: {MAX_SIZE: 1, NESTED: {NMS: 0.9}}\n"
    )
    assert number(values, "TEST.MAX_SIZE") == 1000
    assert number(values, "TEST.SCALE", "TEST.SCALES") == 600
    assert numbers(values, "TEST.SCALES") == [600, 700]
    assert number(values, "TEST.NMS") == 0.5
    assert number(values, "TRAIN.NESTED.NMS") == 0.9
    assert number(values, "TEST.BBOX_AUG.ENABLED") == 0
    assert number(values, "TEST.MISSING") is None


@pytest.mark.parametrize("text", ["a: " + "{b: " * 3000, "a: {\n" + "b\n" * 2**16])
def test_a_cfg_that_would_take_seconds_is_refused(text: str) -> None:
    """The first took 3 s and ended in a RecursionError, the second 4 s."""
    with pytest.raises(CheckpointError, match="`cfg` has over 65536 characters or 200 braces"):
        cfg_values(text)


@pytest.mark.parametrize("make", [butd, lambda: butd("hf"), lambda: butd("hf", attributes=0), x101])
def test_a_folder_holds_all_of_it(make, tmp_path):
    detector = make()
    pictures = [torch.randint(0, 256, size, dtype=torch.uint8) for size in ((3, 60, 90), (3, 90, 60), (3, 60, 90))]
    detector.save(tmp_path / "a")
    again = load_detector(tmp_path / "a")
    assert isinstance(again, OfficialDetector)
    assert again.contract == detector.contract
    for one, other in zip(detector.detect(pictures, []), again.detect(pictures, []), strict=True):
        assert len(one) > 0
        assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())
        assert 0 <= one.boxes.min() <= one.boxes.max() <= 1
        assert one.classes is not None
        torch.testing.assert_close(one.classes.sum(1), torch.ones(len(one)))
    alone = [detector.detect([picture], [])[0] for picture in pictures]
    for one, other in zip(detector.detect(pictures, []), alone, strict=True):
        # Convolutions round a batch of two differently than one image (5e-7 of a map's largest value). A feature that
        # is a small difference of large terms has that error too, so the error is held against the feature's length.
        assert ((one.features - other.features).norm(dim=1) <= 1e-5 * other.features.norm(dim=1)).all()
    assert detector.detect([], []) == []


@pytest.mark.parametrize("make", [butd, lambda **limits: butd("hf", **limits), x101], ids=["caffe", "hf", "x101"])
def test_pictures_at_the_limits(make):
    """None, one or all of the proposals are left; a picture of a few pixels, and one so narrow that it is refused."""
    picture = torch.randint(0, 256, (3, 40, 60), dtype=torch.uint8)
    nothing = make(least_side=5000.0).detect([picture, picture], [])
    assert [len(one) for one in nothing] == [0, 0]
    assert nothing[0].features is not None
    assert nothing[0].features.shape == (0, make().contract.feature_size)
    assert len(make(after_nms=1).detect([picture], [])[0]) == 1
    assert 0 < len(make(before_nms=10**6, after_nms=10**6, least=5000, most=5000).detect([picture], [])[0]) < 5000
    tiny = make().detect([torch.zeros(3, 1, 1, dtype=torch.uint8), torch.zeros(3, 5, 100, dtype=torch.uint8)], [])
    assert all(bool(one.boxes.isfinite().all()) for one in tiny)
    for size, message in {(3, 4000, 4): "4 x 4000 pixels is too narrow", (3, 4, 4000): "4000 x 4 pixels"}.items():
        with pytest.raises(DataError, match=message):
            make().detect([torch.zeros(size, dtype=torch.uint8)], [])


def test_a_number_of_regions_replaces_that_of_an_imported_folder(tmp_path):
    butd().save(tmp_path)
    fewer = open_detector(str(tmp_path), select=3)
    assert (fewer.settings.least, fewer.settings.most) == (3, 3)
    assert fewer.settings.confidence == butd().settings.confidence
    assert fewer.contract.selection.startswith("exactly 3")
    assert len(fewer.detect([torch.randint(0, 255, (3, 60, 80), dtype=torch.uint8)], [])[0]) == 3
    with pytest.raises(RecipeError, match="does not accept a selection rule"):
        open_detector(str(tmp_path), select=find_selection("tden"))
    for settings, counts in {("most=3",): (3, 3), ("least=2", "most=5"): (2, 5), ("least=200",): (200, 200)}.items():
        kept = open_detector(str(tmp_path), settings=settings).settings
        assert (kept.least, kept.most, kept.confidence) == (*counts, butd().settings.confidence)
    for setting, words in {
        "per_class=false": "this detector has no setting 'per_class'",
        "most=few": "cannot be used: most",
    }.items():
        with pytest.raises(RecipeError, match=words):
            open_detector(str(tmp_path), settings=[setting])


def test_settings_that_no_detector_has_are_refused_before_anything_is_loaded():
    for name in ("fasterrcnn_resnet50_fpn", "hf:user/name"):
        with pytest.raises(RecipeError, match=f"{name} has no setting 'cells'"):
            open_detector(name, settings=["cells=3"])


def test_the_contract_tells_dialects_weights_and_sizes_apart():
    here = butd().contract
    assert here.class_names == ("background", *(f"class {n}" for n in range(1, 7)))
    assert here.feature_size == 28
    assert any("extractor" in line for line in here.differences(butd("hf").contract))
    assert [line.split(":")[0] for line in here.differences(butd(shorter=80).contract)] == ["extractor"]
    assert [line.split(":")[0] for line in here.differences(butd(most=11).contract)] == ["selection"]
    done = convert(butd_file(seed=1), None, "other")
    other = OfficialDetector.of(done.tensors, butd().settings, (), "other").contract
    assert [line.split(":")[0] for line in here.differences(other)] == ["weights"]
    assert "bfloat16" in butd(precision="bfloat16").contract.extractor


def test_shorter_numbers_find_nearly_the_same():
    picture = torch.randint(0, 256, (3, 64, 96), dtype=torch.uint8)
    exact, short = (butd(precision=kind).pipeline for kind in ("float32", "bfloat16"))
    prepared = exact.prepare(picture)
    with torch.no_grad():
        maps = exact.network.maps(prepared.image[None])
        with torch.autocast("cpu", torch.bfloat16):
            rough = short.network.maps(prepared.image[None]).float()
    assert (maps - rough).norm() / maps.norm() < 0.02
    assert len(butd(precision="bfloat16").detect([picture], [])[0]) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moost": 3}, "did you mean most"),
        ({"most": "many"}, "most: Input should be a valid integer, found 'many'"),
        ({"overlaps": 0.3}, "overlaps: Input should be a valid array, found 0.3"),
        ({"least": 9, "most": 5}, "least=9 and most=5"),
        ({"confidence": 1.5}, "confidence: .* less than or equal to 1, found 1.5"),
        ({"shorter": 900, "longer": 800}, "expected `shorter` <= `longer`"),
        ({"overlaps": []}, "overlaps: .* at least 1 item"),
        ({"precision": "float16"}, "precision: .* 'float32' or 'bfloat16', found 'float16'"),
        ({"dialect": "hf"}, "no setting 'dialect'"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        with_settings(convert(butd_file(), None, "a").settings, changes)


def refused(tensors: dict[str, Tensor], message: str) -> None:
    def opened() -> OfficialDetector:
        done = convert(tensors, None, "the.file")
        return OfficialDetector.of(done.tensors, done.settings, (), "the.file")

    with pytest.raises(CheckpointError, match=message):
        opened()


def test_other_networks_are_refused():
    whole = butd_file()
    refused({"backbone.body.conv1.weight": torch.ones(1)}, "is not a known detector: its first keys are backbone.body")
    logits = "proposal_generator.rpn_head.objectness_logits"
    refused(whole | {f"{logits}.weight": torch.ones(7, 9, 1, 1)}, "7 objectness logits for 12 anchors")
    name = "backbone.res3.0.conv2.norm.running_var"
    refused({key: value for key, value in whole.items() if key != name}, f"has no {name}")
    refused({k: v for k, v in whole.items() if "res4" not in k}, "has res2, res3, res5 of a ResNet")
    refused({k: v for k, v in whole.items() if "conv3.weight" not in k}, r"no bottlenecks in res2: it lacks .*conv3")
    refused({k: v for k, v in whole.items() if "cls_score" not in k}, "has no 'classes.weight'")
    refused(butd_file(classes=1), "has no class except the background")
    refused(detectron_blobs(classes=1), "has no class except the background")
    wrong = {"roi_heads.box_predictor.bbox_pred.weight": torch.ones(12, 28)}
    refused(whole | wrong, r"boxes.weight has shape \(12, 28\), expected \(28, 28\)")
    refused(whole | {"roi_heads.box_predictor.cls_score.bias": torch.full((7,), torch.nan)}, "are not finite")
    blobs = detectron_blobs()
    refused({k: v for k, v in blobs.items() if k != "res3_0_branch2b_bn_s"}, "has no res3_0_branch2b_bn_s")
    refused({k: v for k, v in blobs.items() if not k.startswith("fpn_inner_res5")}, "has no|another network")


@pytest.mark.parametrize("whole", [butd_file("hf"), detectron_blobs()], ids=["butd", "x101"])
@pytest.mark.parametrize("harm", ["gone", "flat", "empty", "one more"])
def test_any_tensor_may_be_damaged(whole, harm):
    """It opens, or says what is wrong: no other error, and nothing is built that the file does not hold."""
    refusals, some = 0, list(whole.items())[::3]
    for name, value in some:
        far = name.replace("_0_", "_99999999_").replace(".0.", ".99999999.")
        damaged = {"gone": {}, "flat": {name: value.flatten()}, "empty": {name: value[:0] if value.ndim else value},
                   "one more": {name: value, far: value}}[harm]  # fmt: skip
        others = {key: tensor for key, tensor in whole.items() if key != name}
        try:
            done = convert(others | damaged, CFG, "a.file")
            OfficialDetector.of(done.tensors, done.settings, (), "a.file")
        except CheckpointError as error:
            assert "a.file" in str(error)  # noqa: PT017
            refusals += 1
    assert refusals > len(some) / 8


def test_extra_heads_are_left_and_half_precision_is_told():
    extra = butd_file() | {"roi_heads.mask_head.weight": torch.ones(2, 2)}
    done = convert(
        {name: value.half() if value.is_floating_point() else value for name, value in extra.items()}, None, "a"
    )
    assert done.left["roi_heads.mask_head.weight"] == "not in the detector"
    assert all(value.dtype == torch.float32 for value in done.tensors.values())
    assert any("half precision" in note for note in done.notes)
    assert set(done.renamed) | set(done.left) == set(extra)


def test_names_of_classes_have_to_be_as_many():
    done = convert(butd_file(), None, "a")
    with pytest.raises(CheckpointError, match="2 class names were given, but the network has 6"):
        OfficialDetector.of(done.tensors, done.settings, ("cat", "dog"), "a")
