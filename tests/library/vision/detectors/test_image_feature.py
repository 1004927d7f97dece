"""Regions of a detector, the whole picture of a backbone: DenseNet, ResNet or GoogLeNet, as ImageBERT tried."""

import re
from pathlib import Path

import pytest
import torch

from diptych.core import Object, Record
from diptych.data.check import check
from diptych.data.extract.extract import extract
from diptych.data.store.store import Store
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.grid import Grid, backbone_of
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych.vision.detectors.image_feature import WithImageFeature
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import with_image_feature
from diptych.vision.detectors.selection import Selection

RECORDS = [Record("a", objects=(Object("dog", (0.1, 0.1, 0.5, 0.5)),), captions=("a dog",))]
PICTURE = torch.randint(0, 255, (3, 40, 64), dtype=torch.uint8)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("densenet121", 1024), ("resnet18", 512), ("googlenet", 1024)])
@pytest.mark.large
def test_the_backbones_that_the_paper_tries(name, size, tmp_path):
    torch.manual_seed(0)
    detector = WithImageFeature(GroundTruth.of(RECORDS), Backbone.of(name, 64, pretrained=False))
    (seen,) = detector.detect([PICTURE], RECORDS)
    (plain,) = GroundTruth.of(RECORDS).detect([], RECORDS)
    assert torch.equal(seen.features, plain.features)
    squares, _ = letterbox([PICTURE], 64)
    with torch.no_grad():
        cells = detector.backbone(squares)[0]
    rows = -(-40 * cells.shape[1] // 64)
    torch.testing.assert_close(seen.whole, cells[:, :rows].mean((1, 2)))
    assert seen.whole.shape == (size,)
    contract = detector.contract
    assert (contract.whole, contract.whole_size) == (True, size)
    assert contract.feature_size == plain.features.shape[1]
    assert name in contract.extractor
    detector.save(tmp_path)
    again = load_detector(tmp_path)
    assert again.contract == contract
    torch.testing.assert_close(again.detect([PICTURE], RECORDS)[0].whole, seen.whole)


def test_a_store_keeps_it_and_check_knows_its_size(tmp_path):
    from PIL import Image

    Image.fromarray(PICTURE.permute(1, 2, 0).numpy()).save(tmp_path / "a.png")
    record = Record("a", objects=RECORDS[0].objects, captions=("a dog",), image=tmp_path / "a.png")
    Grid(Backbone.of("resnet18", 64, pretrained=False)).save(tmp_path / "grid")
    detector = with_image_feature(GroundTruth.of([record]), str(tmp_path / "grid"))
    extract([record], detector, tmp_path / "store")
    store = Store(tmp_path / "store")
    assert store.regions(0).whole.shape == (512,)
    assert store.contract.whole_size == 512
    assert check(store).ok


def test_what_is_no_backbone_is_refused(tmp_path: Path):
    GroundTruth.of(RECORDS).save(tmp_path / "truth")
    with pytest.raises(RecipeError, match="pass a backbone or a grid detector's folder"):
        with_image_feature(GroundTruth.of(RECORDS), str(tmp_path / "truth"))
    detector = WithImageFeature(GroundTruth.of(RECORDS), Backbone.of("resnet18", 32, pretrained=False))
    detector.save(tmp_path / "both")
    with pytest.raises(RecipeError, match="does not accept a selection rule"):
        load_detector(tmp_path / "both", Selection(most=3))


@pytest.mark.parametrize("option", ["--backbone", "--image-feature"])
def test_without_a_network_the_error_names_the_import_of_a_backbone(option: str) -> None:
    name = "timm/resnet18"
    command = f"diptych import detector grid:{name} --weights FILE --out FOLDER"
    remedy = f"With {option}, first run: {command}; then pass {option} FOLDER"
    with pytest.raises(CheckpointError, match=f"cannot get the weights of {name} .*{re.escape(remedy)}"):
        backbone_of(name, option)
