"""NanoDet-g out of a package of TensorFlow.js: what is read, what is refused, and where its boxes lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError, DataError, DiptychError, RecipeError
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import keep_detector, open_detector
from diptych.vision.detectors.pooled import PooledDetector
from diptych.vision.detectors.proposers import tfjs
from diptych.vision.detectors.proposers.graph_proposer import COCO
from diptych.vision.detectors.proposers.nanodet import BINS, Nanodet, NanodetProposer, NanodetShape
from diptych.vision.detectors.weights import read_detector
from tests.support.onnx_files import write_map
from tests.support.proposed import RECORDS, WIDE, check_kept
from tests.support.tfjs_files import graph_of, network, packed, small_package

ANY = ["sha256=any"]
Described = dict[str, Any]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_package(tmp_path_factory.mktemp("package") / "models.tgz")


def test_a_packed_graph_becomes_a_detector_that_is_kept(package: Path, tmp_path: Path) -> None:
    about = (
        "NanoDet-g at 64 pixels: at least 10, at most 100, score over 0.2, NMS 0.6 per class; 16 values a region, 3 "
        "classes"
    )
    _, both = check_kept(package, "nanodet", tmp_path / "kept", about)
    assert all(10 <= len(one) <= 100 for one in both)


def test_the_weights_are_those_of_the_graph(package: Path) -> None:
    detector = open_detector(f"tfjs:{package}#nanodet", settings=ANY)
    assert isinstance(detector, PooledDetector)
    assert isinstance(detector.proposer, NanodetProposer)
    for name, weights in network().state_dict().items():
        assert torch.equal(weights, detector.proposer.network.state_dict()[name])


def test_a_folder_and_a_file_are_read_like_the_package(package: Path, tmp_path: Path) -> None:
    described, content = graph_of(network())
    (tmp_path / "package/models").mkdir(parents=True)
    (tmp_path / "package/models/nanodet.json").write_text(json.dumps(described))
    (tmp_path / "package/models/nanodet.bin").write_bytes(content)
    wanted = open_detector(f"tfjs:{package}#nanodet", settings=ANY).contract
    for name in (f"{tmp_path}#nanodet", f"{package}", str(tmp_path / "package/models/nanodet.json")):
        assert open_detector(f"tfjs:{name}", settings=ANY).contract == wanted


def test_the_known_files_need_no_word_and_carry_their_licences(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NanodetProposer, "sums", tfjs.read_graph(package, "nanodet").sums)
    keep_detector(f"tfjs:{package}#nanodet", tmp_path / "kept")
    origin = read_detector(tmp_path / "kept")["proposer"]["origin"]
    assert "MIT" in origin["package"]
    assert "Apache-2.0" in origin["upstream"]


def test_other_files_and_other_models_are_refused(package: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nanodet.bin of .* has the sha256 .* --set sha256=any"):
        open_detector(f"tfjs:{package}#nanodet")
    with pytest.raises(
        RecipeError, match=r"Diptych cannot read the model 'blazeface' of .*; pass tfjs:.*#nanodet or tfjs:.*#centernet"
    ):
        open_detector(f"tfjs:{package}#blazeface")
    with pytest.raises(RecipeError, match=r"tfjs:.*#nanodet has no setting 'mean'"):
        open_detector(f"tfjs:{package}#nanodet", settings=["mean=0"])


def test_the_description_alone_names_the_way(tmp_path: Path) -> None:
    (tmp_path / "nanodet.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"nanodet.json holds no weights; .* tfjs:.*nanodet.json\)$"):
        keep_detector(str(tmp_path / "nanodet.json"), tmp_path / "out")


def unknown(described: Described) -> None:
    described["modelTopology"]["node"][0]["op"] = "PyFunc"


def outside(described: Described) -> None:
    described["weightsManifest"][0]["paths"] = ["../../etc/passwd"]


def missing(described: Described) -> None:
    described["weightsManifest"][0]["paths"] = ["other.bin"]


def longer(described: Described) -> None:
    described["weightsManifest"][0]["weights"].append({"name": "more", "shape": [4], "dtype": "int32"})


def endless(described: Described) -> None:
    """A width that needs no bytes, and terabytes as a network."""
    kernel = described["weightsManifest"][0]["weights"][2]
    assert kernel["name"] == "kernel0"
    kernel["shape"], described["weightsManifest"][0]["weights"][3]["shape"] = [0, 3, 3, 2**23], [0, 2**23]


def turned(described: Described) -> None:
    kernel = described["weightsManifest"][0]["weights"][4]
    kernel["shape"] = [1, 9, *kernel["shape"][2:]]


def scaled(described: Described) -> None:
    described["weightsManifest"][0]["weights"][2]["quantization"] = {"dtype": "uint8", "scale": 0.1}


def oblong(described: Described) -> None:
    place = next(node for node in described["modelTopology"]["node"] if node["op"] == "Placeholder")
    place["attr"]["shape"]["shape"]["dim"][3]["size"] = "96"


def shorter(described: Described) -> None:
    nodes = described["modelTopology"]["node"]
    described["modelTopology"]["node"] = [node for node in nodes if not node["name"].endswith("convolution_33")]


def layers(described: Described) -> None:
    described["format"] = "layers-model"


WRONG: dict[Callable[[Described], None], str] = {
    unknown: "is not NanoDet-g: it has the operation PyFunc",
    outside: r"names the shard '../../etc/passwd'; expected a file name without a folder",
    missing: "has no other.bin; expected other.bin in one folder",
    longer: r"nanodet.bin of .* hold \d+ bytes, expected \d+; download the package again",
    endless: "expected",
    turned: r"convolution_1 has kernel and stride \(\(4, 4, 1, 9\), 1\), expected \(\(4, 4, 3, 3\), 1\)",
    scaled: r"cannot be read as a graph model .*quantization.dtype: Input should be 'float16'",
    oblong: r"is not NanoDet-g \(found an input of \[1, 3, 64, 96\], expected \(batch, 3, side, side\)\)",
    shorter: r"is not NanoDet-g \(found 33 convolutions, expected 34\)",
    layers: "format: Input should be 'graph-model'",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_a_graph_of_another_form_is_refused_in_a_sentence(change: Callable[[Described], None], tmp_path: Path) -> None:
    described, content = graph_of(network())
    change(described)
    path = packed(tmp_path / "m.tgz", {"nanodet.bin": content, "nanodet.json": json.dumps(described).encode()})
    with pytest.raises(CheckpointError, match=WRONG[change]) as caught:
        open_detector(f"tfjs:{path}#nanodet", settings=ANY)
    assert "\n" not in str(caught.value)


def test_archives_are_read_within_limits(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, words: str) -> None:
        with pytest.raises(DiptychError, match=words):
            open_detector(f"tfjs:{name}", settings=ANY)

    bomb = packed(tmp_path / "bomb.tgz", {"zeros": bytes(2**20), "nanodet.json": b"{}"})
    assert bomb.stat().st_size < 5000
    (tmp_path / "half.tgz").write_bytes(package.read_bytes()[:2000])
    (tmp_path / "text.tgz").write_text("no archive")
    refused(f"{tmp_path}/half.tgz#nanodet", r"cannot read .*half.tgz \(.*\); expected a package of npm")
    refused(f"{tmp_path}/text.tgz#nanodet", r"cannot read .*text.tgz \(.*\); expected a package of npm")
    refused(f"{tmp_path}/none.tgz#nanodet", r"cannot read .*none.tgz \(.*\); expected a package of npm")
    refused(f"{package}#../nanodet", "is a path; expected the bare name of a model")
    refused(f"{package}#other", "has no other.json; expected other.json in one folder")
    refused(f"{packed(tmp_path / 'text2.tgz', {'nanodet.json': b'{'})}#nanodet", "is not JSON")
    refused(f"{packed(tmp_path / 'deep.tgz', {'nanodet.json': b'[' * 10**5})}#nanodet", "is not JSON")
    monkeypatch.setattr(tfjs, "MOST_UNPACKED", 2**20)
    refused(f"{bomb}#nanodet", "unpacks to more than 1048576 bytes; pass a package of models")
    monkeypatch.setattr(tfjs, "MOST_JSON", 1)
    refused(f"{package}#nanodet", r"nanodet.json has \d+ bytes, expected at most 1; ")


class Known(nn.Module):
    """One box in the middle map: cell 3 across and 2 down, 1 cell to the left and up, 2 to the right, 1.5 down."""

    def __init__(self, shape: NanodetShape) -> None:
        super().__init__()
        self.shape, self.seen = shape, torch.zeros(0)

    def forward(self, pixels: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        self.seen = pixels
        found = []
        for stride in (8, 16, 32):
            count = self.shape.side // stride
            found.append(torch.full((len(pixels), self.shape.classes + 4 * BINS, count, count), -9.0))
        cell = found[1][:, :, 2, 3]
        cell[:, 1] = 3.0
        for side, distances in enumerate([[1], [1], [2], [1, 2]]):
            cell[:, self.shape.classes + side * BINS + torch.tensor(distances)] = 40.0
        maps = [torch.zeros(len(pixels), self.shape.pyramid, *one.shape[2:]) for one in found]
        return maps, found


@pytest.mark.parametrize(("height", "width"), [(128, 128), (64, 128), (128, 64), (300, 400), (400, 300)])
def test_boxes_of_wide_and_tall_images_lie_where_the_cells_say(height: int, width: int) -> None:
    proposer = NanodetProposer(NanodetShape(128, 4, 8, 3), ("cat", "dog", "kite"), {})
    proposer.network = known = Known(proposer.shape)  # type: ignore[assignment]
    proposer.register_parameter("device", nn.Parameter(torch.zeros(1)))
    image = torch.zeros(3, height, width, dtype=torch.uint8)
    image[0] = 255
    (found,) = proposer.propose([image])
    pixels = torch.tensor([(3.5 - 1) * 16, (2.5 - 1) * 16, (3.5 + 2) * 16, (2.5 + 1.5) * 16])
    scale = max(height, width) / 128
    wanted = (pixels * scale / torch.tensor([width, height, width, height])).clamp(0, 1)
    torch.testing.assert_close(found.boxes[0], wanted, rtol=0, atol=1e-5)
    assert found.labels is not None
    assert found.labels[0].argmax() == 1
    torch.testing.assert_close(found.scores[0], torch.tensor(3.0).sigmoid())
    # BGR: red comes last, by its own mean and deviation; grey is outside the image.
    torch.testing.assert_close(known.seen[0, :, 0, 0], torch.tensor([-0.406 / 0.225, -0.456 / 0.224, 0.515 / 0.229]))
    if height != width:
        outside = torch.tensor([114 / 255 - mean for mean in (0.406, 0.456, 0.485)]) / torch.tensor(
            [0.225, 0.224, 0.229]
        )
        torch.testing.assert_close(known.seen[0, :, -1, -1], outside)


def test_a_backbone_replaces_the_features(package: Path, tmp_path: Path) -> None:
    name, maps = f"tfjs:{package}#nanodet", f"onnx:{write_map(tmp_path / 'maps.onnx')}"
    own, other = (open_detector(name, settings=ANY, backbone=one) for one in (None, maps))
    (one,), (two,) = own.detect([WIDE], RECORDS[:1]), other.detect([WIDE], RECORDS[:1])
    assert torch.equal(one.boxes, two.boxes)
    assert two.features is not None
    assert two.features.shape[1] == other.contract.feature_size != own.contract.feature_size


@pytest.mark.parametrize(
    ("settings", "selection"),
    [
        (["most=36", "least=36"], "exactly 36, score over 0.2"),
        (["least=120"], "exactly 120, score over 0.2"),
        (["most=5"], "exactly 5, score over 0.2"),
        (["score=0", "overlap=0.5", "per_class=false"], "at least 10, at most 100, by score, NMS 0.5 over all classes"),
    ],
)
def test_the_selection_has_settings(settings: list[str], selection: str, package: Path) -> None:
    detector = open_detector(f"tfjs:{package}#nanodet", settings=[*ANY, *settings])
    assert detector.contract.selection.startswith(selection)


def test_a_kept_detector_takes_the_same_settings(package: Path, tmp_path: Path) -> None:
    keep_detector(f"tfjs:{package}#nanodet", tmp_path / "kept", settings=ANY)
    kept = str(tmp_path / "kept")
    assert open_detector(kept, settings=["most=36", "least=36"]).contract.selection.startswith("exactly 36, score over")
    assert open_detector(kept, select=12).contract.selection.startswith("exactly 12, score over")
    for settings, words in {
        ("cells=3",): "--set does not apply to .*, a detector folder",
        ("score=high",): "a setting of the selection cannot be used: score: ",
        ("most=0",): "least=0 and most=0: expected 0 <= least <= most",
    }.items():
        with pytest.raises(RecipeError, match=words):
            open_detector(kept, settings=settings)


def test_regions_are_drawn_before_a_long_extraction(package: Path, tmp_path: Path) -> None:
    """Twelve images of the whole folder; those that are no image are passed over."""
    (tmp_path / "photos").mkdir()
    for number in range(30):
        Image.new("RGB", (40, 20 + number), "#808000").save(tmp_path / "photos" / f"{number:02}.png")
    (tmp_path / "photos/00.png").write_text("no image")
    name, out = f"tfjs:{package}#nanodet", tmp_path / "kept"
    keep_detector(name, out, settings=ANY, images=tmp_path / "photos")
    with Image.open(out / "regions.png") as sheet:
        assert sheet.size == (4 * 326 + 6, 3 * 326 + 6)
    assert load_detector(out).contract == open_detector(name, settings=ANY).contract
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"found no image to draw regions on in .*; pass a folder of photographs"):
        keep_detector(name, tmp_path / "other", settings=ANY, images=tmp_path / "empty")
    assert not (tmp_path / "other").exists()


def test_the_published_network_has_the_sizes_of_its_graph() -> None:
    """Of the 7,574,558 bytes of nanodet.bin all but 2,422 are weights in half precision."""
    with torch.device("meta"):
        made = Nanodet(NanodetShape(416, 32, 128))
    assert sum(weights.numel() for weights in made.parameters()) == (7_574_558 - 2_422) // 2
    assert (len(COCO), COCO[0], COCO[-1]) == (80, "person", "toothbrush")
