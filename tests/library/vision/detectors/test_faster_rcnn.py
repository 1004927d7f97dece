"""torchvision's Faster R-CNN as detector, with random weights: shapes, selection, files, and a step of training."""

import pickle
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch.hub import get_dir

from diptych.core import Object, Record
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.vision.detectors.faster_rcnn import LOSSES, FasterRCNN, FasterRCNNConfig, FasterRCNNDetection
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.selection import Selection

SHAPE = FasterRCNNConfig("fasterrcnn_mobilenet_v3_large_320_fpn", ("background", "cat", "dog"), shorter=64, longer=96)
EXACTLY = Selection(most=5, least=5)
PICTURES = [torch.randint(0, 256, (3, h, w), generator=torch.Generator().manual_seed(h), dtype=torch.uint8)
            for h, w in ((50, 70), (64, 40))]  # fmt: skip
RECORDS = [Record("a"), Record("b")]


@pytest.fixture(scope="module")
def detector() -> FasterRCNN:
    torch.manual_seed(0)
    return FasterRCNN(SHAPE.build(), SHAPE, EXACTLY)


def test_regions_of_pictures_of_two_sizes(detector: FasterRCNN) -> None:
    for regions, picture in zip(detector.detect(PICTURES, RECORDS), PICTURES, strict=True):
        assert regions.size == (picture.shape[2], picture.shape[1])
        assert regions.features is not None
        assert regions.classes is not None
        assert regions.whole is not None
        assert regions.features.shape == (5, 1024) == (5, detector.contract.feature_size)
        assert regions.whole.shape == (1024,)
        torch.testing.assert_close(regions.classes.sum(1), torch.ones(5))
        assert ((regions.boxes >= 0) & (regions.boxes <= 1)).all()
        assert (regions.boxes[:, 2:] >= regions.boxes[:, :2]).all()
        torch.testing.assert_close(regions.scores, regions.classes[:, 1:].amax(1))
    assert detector.detect([], []) == []


def test_a_picture_of_which_nothing_is_left_is_refused(detector: FasterRCNN) -> None:
    for size in ((3, 4, 400), (3, 400, 4)):
        with pytest.raises(DataError, match=rf"{size[2]} x {size[1]} pixels is too narrow"):
            detector.detect([PICTURES[0], torch.zeros(size, dtype=torch.uint8)], RECORDS)
    assert len(detector.detect([torch.zeros(3, 4, 380, dtype=torch.uint8)], RECORDS[:1])[0]) == 5


def test_the_features_are_the_box_heads_output(detector: FasterRCNN) -> None:
    """The class probabilities follow from the last layer's features alone; fc6 is another layer."""
    regions = detector.detect(PICTURES[:1], RECORDS[:1])[0]
    assert regions.features is not None
    assert regions.classes is not None
    again = detector.network.roi_heads.box_predictor.cls_score(regions.features).softmax(1)
    torch.testing.assert_close(again, regions.classes)
    shape = FasterRCNNConfig(SHAPE.architecture, SHAPE.class_names, "fc6", SHAPE.shorter, SHAPE.longer)
    first = FasterRCNN(detector.network, shape, EXACTLY)
    features = first.detect(PICTURES[:1], RECORDS[:1])[0].features
    assert features is not None
    torch.testing.assert_close(detector.network.roi_heads.box_head.fc7(features).relu(), regions.features)
    assert first.contract.extractor == "fasterrcnn_mobilenet_v3_large_320_fpn fc6 at 64 pixels"


@pytest.mark.large
def test_it_is_the_same_after_a_save(detector: FasterRCNN, tmp_path: Path) -> None:
    detector.save(tmp_path / "detector")
    again = load_detector(tmp_path / "detector")
    assert again.contract == detector.contract
    mine, theirs = detector.detect(PICTURES[:1], RECORDS[:1])[0], again.detect(PICTURES[:1], RECORDS[:1])[0]
    for name, value in mine.tensors().items():
        assert torch.equal(value, theirs.tensors()[name]), name


@pytest.mark.large
def test_weights_come_from_a_file(detector: FasterRCNN, tmp_path: Path) -> None:
    weights = detector.network.state_dict()
    torch.save({"model": weights}, tmp_path / "w.pth")
    save_file(weights, tmp_path / "w.safetensors")
    for name in ("w.pth", "w.safetensors"):
        assert FasterRCNN.from_file(tmp_path / name, SHAPE, EXACTLY).contract == detector.contract


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path, ("evil",)


@pytest.mark.slow
def test_other_files_are_refused_by_name(detector: FasterRCNN, tmp_path: Path) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(CheckpointError, match=message):
            FasterRCNN.from_file(tmp_path / name, SHAPE, EXACTLY)

    refused("missing.pth", "missing.pth is missing; expected a file of weights")
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Evil(), 2))
    refused("evil.pth", "would run its code")
    torch.save({"epoch": 3}, tmp_path / "other.pth")
    refused("other.pth", "has no tensors")
    (tmp_path / "cut.safetensors").write_bytes(b"1234567")
    refused("cut.safetensors", "cut short or is not a safetensors file")
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.pth")
    refused("a.pth", "belongs to another network: the network has no a")
    wide = FasterRCNNConfig(SHAPE.architecture, ("background", "cat"), shorter=64, longer=96)
    torch.save(wide.build().state_dict(), tmp_path / "classes.pth")
    refused("classes.pth", r"cls_score.* has shape \(2.*\), expected \(3")


def test_without_a_network_the_message_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("torch.hub.download_url_to_file", offline)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"pass fasterrcnn_mobilenet_v3_large_fpn-\w+\.pth with") as error:
        FasterRCNN.from_torchvision("fasterrcnn_mobilenet_v3_large_fpn")
    assert get_dir() in str(error.value)


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(RecipeError, match="did you mean resnet50_fpn"):
        FasterRCNNConfig("resnet5_fpn", ("background", "cat")).build()
    with pytest.raises(RecipeError, match="no detector weights for 'resnet18_fpn'"):
        FasterRCNN.from_torchvision("resnet18_fpn")
    with pytest.raises(RecipeError, match="has no layer fc6"):
        FasterRCNNConfig("fasterrcnn_resnet50_fpn_v2", ("background", "cat"), "fc6").build()


@pytest.mark.large
def test_any_resnet_can_be_its_backbone() -> None:
    shape = FasterRCNNConfig("resnet18_fpn", ("background", "cat"), shorter=64, longer=64)
    regions = FasterRCNN(shape.build(), shape, EXACTLY).detect(PICTURES[:1], RECORDS[:1])[0]
    assert len(regions) == 5


@pytest.mark.slow
@pytest.mark.large
def test_it_trains_like_any_module() -> None:
    from diptych_world.detector.network import DetectorConfig
    from diptych_world.detector.training import detection_batch

    torch.manual_seed(0)
    shape = DetectorConfig(("cat", "dog"), side=64)
    records = [Record("a", objects=(Object("dog", (0.1, 0.1, 0.6, 0.5)),)), Record("b")]
    batch = detection_batch(shape, PICTURES, records)
    network, update = SHAPE.build().train(), FasterRCNNDetection()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    totals = []
    for _ in range(4):
        losses = next(update.losses(network, batch))
        assert set(losses) == set(LOSSES) == set(update.counts(batch))
        total = sum((loss / update.counts(batch)[name] for name, loss in losses.items()), torch.zeros(()))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    assert totals[-1] < totals[0]
