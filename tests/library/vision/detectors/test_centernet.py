"""CenterNet out of a package of TensorFlow.js: what is read, what is refused, and where its boxes lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.detectors.open import keep_detector, open_detector
from diptych.vision.detectors.pooled import PooledDetector
from diptych.vision.detectors.proposers import tfjs
from diptych.vision.detectors.proposers.centernet import Centernet, CenternetProposer, CenternetShape
from diptych.vision.detectors.weights import read_detector
from tests.support.proposed import check_kept
from tests.support.tfjs_files import centernet_graph, centernet_network, packed

ANY = ["sha256=any"]
Described = dict[str, Any]


@pytest.fixture(scope="module")
def network() -> Centernet:
    return centernet_network()


@pytest.fixture(scope="module")
def package(network: Centernet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    described, content = centernet_graph(network)
    files = {"centernet.bin": content, "centernet.json": json.dumps(described).encode()}
    return packed(tmp_path_factory.mktemp("package") / "models.tgz", files)


def test_a_packed_graph_becomes_a_detector_that_is_kept(package: Path, network: Centernet, tmp_path: Path) -> None:
    about = (
        "CenterNet at 64 pixels: at least 10, at most 100, score over 0.2, NMS 0.6 per class; 248 values a region, 3 "
        "classes"
    )
    detector, _ = check_kept(package, "centernet", tmp_path / "kept", about, rtol=1e-4, atol=1e-4)
    assert isinstance(detector, PooledDetector)
    assert isinstance(detector.proposer, CenternetProposer)
    for name, weights in network.state_dict().items():
        assert torch.equal(weights, detector.proposer.network.state_dict()[name]), name


def test_the_known_files_need_no_setting_and_name_the_missing_licence(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match=r"centernet.bin of .* has the sha256 .* --set sha256=any"):
        open_detector(f"tfjs:{package}#centernet")
    monkeypatch.setattr(CenternetProposer, "sums", tfjs.read_graph(package, "centernet").sums)
    keep_detector(f"tfjs:{package}#centernet", tmp_path / "kept")
    assert "no licence file" in read_detector(tmp_path / "kept")["proposer"]["origin"]["upstream"]
    with pytest.raises(RecipeError, match="has no setting 'mean'"):
        open_detector(f"tfjs:{package}#centernet", settings=["mean=0"])
    with pytest.raises(RecipeError, match=r"pass tfjs:.*#nanodet or tfjs:.*#centernet"):
        open_detector(f"tfjs:{package}#blazeface")


def missing(described: Described) -> None:
    described["weightsManifest"][0]["weights"][0]["name"] = "other"


def turned(described: Described) -> None:
    kernel = next(one for one in described["weightsManifest"][0]["weights"] if one["shape"] == [3, 3, 64, 1])
    kernel["shape"] = [9, 1, 64, 1]


def stepped(described: Described) -> None:
    node = next(
        one
        for one in described["modelTopology"]["node"]
        if one["name"].endswith("expanded_conv_1/depthwise/depthwise_weights/made")
    )
    node["attr"]["strides"]["list"]["i"] = ["1", "1", "1", "1"]


def channels_first(described: Described) -> None:
    place = next(node for node in described["modelTopology"]["node"] if node["op"] == "Placeholder")
    place["attr"]["shape"]["shape"]["dim"] = [{"size": size} for size in ("1", "3", "64", "64")]


WRONG: dict[Callable[[Described], None], str] = {
    missing: r"lacks CenterNet's MobilenetV3/Conv/Conv2D_weights; pass the whole package",
    turned: r"expanded_conv_1/depthwise/depthwise_weights has shape and stride \(\(64, 1, 9, 1\), 2\), expected",
    stepped: r"depthwise_weights has shape and stride \(\(64, 1, 3, 3\), 1\), expected \(\(64, 1, 3, 3\), 2\)",
    channels_first: r"is not CenterNet \(found an input of \[1, 3, 64, 64\], expected \(batch, side, side, 3\)\)",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_a_graph_of_another_form_is_refused_in_a_sentence(
    change: Callable[[Described], None], network: Centernet, tmp_path: Path
) -> None:
    described, content = centernet_graph(network)
    change(described)
    files = {"centernet.bin": content, "centernet.json": json.dumps(described).encode()}
    with pytest.raises(CheckpointError, match=WRONG[change]) as caught:
        open_detector(f"tfjs:{packed(tmp_path / 'm.tgz', files)}#centernet", settings=ANY)
    assert "\n" not in str(caught.value)


class Known(nn.Module):
    """A peak of class 1 in cell 5 across and 3 down, its equal neighbour a class lower, and sides in pixels."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.count, self.seen = side // 4, torch.zeros(0)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        self.seen = pixels
        scores = torch.full((len(pixels), 3, self.count, self.count), 0.01)
        scores[:, 1, 3, 5] = 0.9
        scores[:, 1, 3, 6] = 0.8  # no peak: the next cell is higher
        sides = torch.zeros(len(pixels), 4, self.count, self.count)
        sides[:, :, 3, 5] = torch.tensor([8.0, 4.0, 20.0, 12.0])
        return scores, sides, [torch.zeros(len(pixels), 120, 2, 2), torch.zeros(len(pixels), 128, 16, 16)]


@pytest.mark.parametrize(("height", "width"), [(64, 64), (32, 64), (64, 32), (150, 200)])
def test_boxes_of_wide_and_tall_images_lie_where_the_cells_say(height: int, width: int) -> None:
    proposer = CenternetProposer(CenternetShape(64, 3), ("cat", "dog", "kite"), {})
    proposer.network = known = Known(64)  # type: ignore[assignment]
    proposer.register_parameter("device", nn.Parameter(torch.zeros(1)))
    image = torch.zeros(3, height, width, dtype=torch.uint8)
    image[0] = 255
    (found,) = proposer.propose([image])
    pixels = torch.tensor([20.0 - 8, 12 - 4, 20 + 20, 12 + 12])
    scale = max(height, width) / 64
    wanted = (pixels * scale / torch.tensor([width, height, width, height])).clamp(0, 1)
    torch.testing.assert_close(found.boxes[0], wanted, rtol=0, atol=1e-5)
    assert found.labels is not None
    torch.testing.assert_close(found.labels[0], torch.tensor([0.01, 0.9, 0.01]))
    assert found.scores[0].item() == pytest.approx(0.9)
    assert (found.scores < 0.8).sum() == len(found.scores) - 1
    assert known.seen[0, :, 0, 0].tolist() == [255, 0, 0]  # RGB, not scaled
    if height != width:
        assert known.seen[0, :, -1, -1].tolist() == [114] * 3


def test_the_steps_up_and_the_padding_are_tensorflows(network: Centernet) -> None:
    """Two kinds of arithmetic that torch does otherwise: SAME padding at stride 2, and the resize of version 1."""
    image = torch.rand(1, 3, 64, 64) * 255
    stem = network.stem
    by_hand = torch.zeros(1, 3, 65, 65)  # one row and column after the image, none before
    by_hand[..., :64, :64] = image
    torch.testing.assert_close(stem(image), conv2d(by_hand, stem.weight, stem.bias, stride=2))
    up = network.ups[0]
    rows = {axis: torch.zeros(1, 128, 2, 2) for axis in (0, 1)}
    rows[0][0, 0] = torch.tensor([[0.0, 8.0], [4.0, 0.0]])
    up.branches = nn.ModuleList([Fixed(rows[0]), Fixed(rows[1])])
    joined = up(torch.zeros(1, 480, 2, 2), torch.zeros(1, 88, 4, 4))
    wanted = [[0, 4, 8, 8], [2, 3, 4, 4], [4, 2, 0, 0], [4, 2, 0, 0]]
    assert joined[0, 128].tolist() == wanted


class Fixed(nn.Module):
    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, cells: Tensor) -> Tensor:
        return self.output
