"""ONNX files as detectors and as backbones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems import find_selection
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import keep_detector, open_detector
from diptych.vision.detectors.pooled import PooledDetector
from diptych.vision.detectors.proposers.proposer import Candidates
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.weights import read_detector, write_detector
from tests.support.onnx_files import BYTES, write, write_map
from tests.support.proposed import RECORDS, SQUARE, WIDE, grid_folder

OFFICIAL = find_selection("tden-official")


def onnx_detector(path: Path, folder: Path, *settings: str, select: Selection | int = OFFICIAL) -> Detector:
    maps = write_map(folder / "maps.onnx")
    return open_detector(f"onnx:{path}", [], backbone=f"onnx:{maps}", settings=settings, select=select)


BOXES = [[[8.0, 8, 24, 16], [0, 0, 16, 32]]]
CENTRED = [[[16.0, 12, 16, 8], [8, 16, 16, 32]]]
FOUND = [[0.25, 0.25, 0.75, 0.5], [0, 0, 0.5, 1]]
SCORES = [[[0.1, 0.9, 0.0], [0.6, 0.1, 0.2]]]
LOGITS = np.log(np.array(SCORES).clip(1e-6, 1) / (1 - np.array(SCORES).clip(1e-6, 1)))
EXPORTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "apart": ({"boxes": BOXES, "scores": SCORES}, []),
    "logits": ({"boxes": BOXES, "logits": LOGITS}, ["activation=sigmoid"]),
    "background": ({"boxes": BOXES, "scores": [[[0.5, *row] for row in SCORES[0]]]}, ["background=first"]),
    "labels": ({"boxes": BOXES, "scores": [[0.9, 0.6]], "labels": [[1, 0]]}, ["classes=3"]),
    "from one": ({"boxes": BOXES, "scores": [[0.9, 0.6]], "labels": [[2, 1]]}, ["classes=3", "first_label=1"]),
    "no batch": ({"boxes": BOXES[0], "scores": [0.9, 0.6], "labels": [1, 0]}, ["classes=3"]),
    "fractions": ({"dets": np.array(BOXES) / 32, "scores": SCORES}, ["unit=fractions"]),
    "yxyx": ({"boxes": np.array(BOXES)[..., [1, 0, 3, 2]], "scores": SCORES}, ["form=yxyx"]),
    "chosen": ({"output0": [[[*BOXES[0][0], 0.9, 1], [*BOXES[0][1], 0.6, 0], [0] * 6]]}, ["classes=3"]),
    "columns": (
        {"output0": np.swapaxes(np.concatenate([CENTRED, SCORES], 2), 1, 2)}, ["outputs=columns"]),
    "rows": (
        {"output0": np.concatenate([CENTRED, [[[1.0], [1.0]]], SCORES], 2)}, ["outputs=rows", "objectness=true"]),
}  # fmt: skip


def test_a_number_of_regions_is_a_rule(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx", {"boxes": BOXES, "scores": SCORES})
    assert onnx_detector(path, tmp_path, select=1).contract.selection == "exactly 1, by score, NMS 0.5 per class"


@pytest.mark.parametrize("name", EXPORTS)
def test_the_forms_in_which_onnx_detectors_give_boxes(name: str, tmp_path: Path) -> None:
    outputs, settings = EXPORTS[name]
    detector = onnx_detector(write(tmp_path / "net.onnx", outputs), tmp_path, *settings)
    (found,) = detector.detect([SQUARE], RECORDS[:1])
    torch.testing.assert_close(found.boxes, torch.tensor(FOUND), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.scores, torch.tensor([0.9, 0.6]), rtol=1e-4, atol=1e-4)
    assert found.classes is not None
    assert found.classes.argmax(1).tolist() == [1, 0]
    assert found.classes.shape == (2, 3)
    assert found.features is not None
    assert found.features.shape == (2, 5) == (2, detector.contract.feature_size)


def test_yolo_is_known_by_its_shape_and_names_its_classes(tmp_path: Path) -> None:
    """(1, 4 + C, N) of Ultralytics: centres, in a letterbox; the names stand in the file."""
    columns = np.zeros((1, 6, 1344), np.float32)
    columns[0, :, 7] = [16, 8, 16, 8, 0.1, 0.8]
    path = write(tmp_path / "yolo.onnx", {"output0": columns}, notes={"names": "{0: 'cat', 1: \"dog's bed\"}"})
    detector = onnx_detector(path, tmp_path)
    (found,) = detector.detect([WIDE], RECORDS[:1])
    assert detector.contract.class_names == ("cat", "dog's bed")
    # The picture is twice as wide as high, so that it fills the upper half of the square.
    torch.testing.assert_close(found.boxes, torch.tensor([[0.25, 0.25, 0.75, 0.75]]))
    torch.testing.assert_close(found.classes, torch.tensor([[0.1, 0.8]]))


def yolox(folder: Path) -> Path:
    """(1, 21, 5 + C) of a picture of 32 pixels, as YOLOX's own export leaves it: 16 cells of 8 pixels, 4, and 1."""
    rows = np.zeros((1, 21, 7), np.float32)
    rows[0, 6] = [0.5, 0.25, np.log(2), np.log(1.5), 0.9, 0.1, 0.8]  # third cell of the second row: x 20, y 10
    rows[0, 20] = [0.5, 0.5, np.log(1), np.log(0.5), 0.5, 0.7, 0.2]  # the cell of the whole picture
    return write(folder / "yolox.onnx", {"output": rows})


def test_yolox_as_its_own_export_leaves_it(tmp_path: Path) -> None:
    notes: list[str] = []
    maps = write_map(tmp_path / "maps.onnx")
    options = {"backbone": f"onnx:{maps}", "select": OFFICIAL, "report": notes.append}
    with pytest.raises(RecipeError, match=r"a box per cell of 8, 16, 32 pixels.*--set form=yolox .*form=cxcywh"):
        open_detector(f"onnx:{yolox(tmp_path)}", [], **options)  # type: ignore[arg-type]
    options["settings"] = ["form=yolox"]
    detector = open_detector(f"onnx:{yolox(tmp_path)}", [], **options)  # type: ignore[arg-type]
    (found,) = detector.detect([SQUARE], RECORDS[:1])
    assert "assumed: objectness=true" in notes
    wanted = torch.tensor([[12.0, 4, 28, 16], [0, 8, 32, 24]]) / 32
    torch.testing.assert_close(found.boxes, wanted)
    torch.testing.assert_close(found.scores, torch.tensor([0.72, 0.35]))
    detector.save(tmp_path / "kept")
    (again,) = load_detector(tmp_path / "kept").detect([SQUARE], RECORDS[:1])
    torch.testing.assert_close(again.boxes, wanted)


@pytest.mark.parametrize("settings", [("form=cxcywh",), ("form=cxcywh", "unit=fractions")])
def test_boxes_of_yoloxs_cells_may_be_decoded(settings: tuple[str, ...], tmp_path: Path) -> None:
    """As many rows as it has cells."""
    rows = np.zeros((1, 21, 7), np.float32)
    rows[0, 6] = [16, 12, 16, 8, 0.9, 0.1, 0.8]
    rows[0, :, :4] /= 32 if "unit=fractions" in settings else 1
    path = write(tmp_path / "decoded.onnx", {"output": rows})
    (found,) = onnx_detector(path, tmp_path, *settings).detect([SQUARE], RECORDS[:1])
    torch.testing.assert_close(found.boxes, torch.tensor([FOUND[0]]))


def test_yolox_of_one_class(tmp_path: Path) -> None:
    """Rows of six numbers, more than an export has that chose its boxes."""
    rows = np.zeros((1, 1344, 6), np.float32)
    rows[0, 0] = [0.5, 0.5, np.log(2), -0.5, 0.9, 0.8]
    path = write(tmp_path / "one.onnx", {"output": rows}, axes=(1, 3, 256, 256))
    (found,) = onnx_detector(path, tmp_path, "form=yolox").detect([SQUARE], RECORDS[:1])
    sides = torch.tensor([16, 8 * np.exp(-0.5)]) / 256
    torch.testing.assert_close(found.boxes[0, 2:] - sides, torch.tensor([0.5, 0.5]) * 8 / 256 - sides / 2)
    torch.testing.assert_close(found.scores, torch.tensor([0.72]))


def test_features_of_the_file_itself(tmp_path: Path) -> None:
    outputs = {"boxes": BOXES, "scores": SCORES, "features": [[[1.0, 2, 3, 4], [5, 6, 7, 8]]]}
    detector = open_detector(f"onnx:{write(tmp_path / 'net.onnx', outputs)}", [], select=OFFICIAL)
    (found,) = detector.detect([SQUARE], RECORDS[:1])
    assert found.features is not None
    assert found.features.tolist() == outputs["features"][0]  # type: ignore[comparison-overlap]
    assert detector.contract.feature_size == 4


def test_how_pictures_come_to_the_network(tmp_path: Path) -> None:
    """The input is given back: bytes, blue first, colours last, stretched; and the size, where it is asked for."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["image"], ["features_"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["features_", "shape"], ["features"]),
        helper.make_node("Cast", ["size"], ["boxes_"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["zero", "boxes_"], ["boxes"], axis=1),
    ]
    constants = [
        helper.make_tensor("shape", TensorProto.INT64, [2], [1, 24]),
        helper.make_tensor("zero", TensorProto.FLOAT, [1, 2], [0.0, 0.0]),
    ]
    inputs = [
        helper.make_tensor_value_info("image", TensorProto.UINT8, [1, 2, 4, 3]),
        helper.make_tensor_value_info("size", TensorProto.INT64, [1, 2]),
    ]
    outputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 4]),
        helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 24]),
    ]
    graph = helper.make_graph(nodes, "echo", inputs, outputs, constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "echo.onnx"
    )
    detector = open_detector(f"onnx:{tmp_path / 'echo.onnx'}", [], settings=["colours=bgr"])
    picture = torch.arange(24, dtype=torch.uint8).view(3, 2, 4)
    (found,) = detector.detect([picture.repeat_interleave(20, 1).repeat_interleave(20, 2)], RECORDS[:1])
    assert found.features is not None
    torch.testing.assert_close(
        found.features[0].view(2, 4, 3), picture.flip(0).permute(1, 2, 0).float(), atol=1, rtol=0
    )
    assert found.boxes.tolist() == [[0, 0, 1, 1]]  # 4 wide, 2 high: as the network was told


def test_an_onnx_grid_is_the_same_after_a_save(tmp_path: Path) -> None:
    path = write_map(tmp_path / "maps.onnx")
    notes: list[str] = []
    settings = ["cells=2", "mean=0.5", "deviation=[0.5,0.5,0.5]"]
    grid = open_detector(f"onnx:{path}", [], settings=settings, report=notes.append)
    assert "assumed: map=maps" in notes
    assert not any("mean" in note for note in notes)
    both = grid.detect([SQUARE, WIDE], RECORDS)
    squares, _ = letterbox([SQUARE], 32)
    weights = torch.tensor(onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[0]))
    maps = torch.nn.functional.conv2d((squares / 255 - 0.5) / 0.5, weights, stride=8)
    wanted = torch.nn.functional.adaptive_avg_pool2d(maps, 2)[0].flatten(1).T
    torch.testing.assert_close(both[0].features, wanted, rtol=1e-4, atol=1e-5)
    assert len(both[1]) == 2
    grid.save(tmp_path / "kept")
    path.unlink()
    again = load_detector(tmp_path / "kept")
    assert again.contract == grid.contract
    assert torch.equal(again.detect([SQUARE], RECORDS[:1])[0].features, both[0].features)  # type: ignore[arg-type]
    assert grid.contract.extractor == "grid:onnx/maps at 32 pixels"


def test_an_onnx_network_of_tokens(tmp_path: Path) -> None:
    tokens = np.arange(10 * 5, dtype=np.float32).reshape(1, 10, 5)
    grid = open_detector(f"onnx:{write(tmp_path / 'vit.onnx', {'last_hidden_state': tokens})}", [])
    (found,) = grid.detect([SQUARE], RECORDS[:1])
    assert found.features is not None
    assert found.features.tolist() == tokens[0, 1:].tolist()  # the first is the class token


@pytest.mark.slow
def test_import_keeps_a_detector_with_its_backbone_and_the_names_of_its_classes(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\nkite\n")
    path = write(tmp_path / "net.onnx", {"boxes": BOXES, "scores": [[0.9, 0.6]], "labels": [[1, 0]]})
    lines = keep_detector(str(path), tmp_path / "out", None, str(grid_folder(tmp_path / "grid")), [], names)
    assert "assumed: form=xyxy" in lines
    assert lines[-1].endswith("3 classes")
    detector = load_detector(tmp_path / "out", Selection(most=1))
    (found,) = detector.detect([SQUARE], RECORDS[:1])
    assert detector.contract.class_names == ("cat", "dog", "kite")
    assert found.boxes.tolist() == FOUND[:1]
    with pytest.raises(RecipeError, match="exists already"):
        keep_detector(str(path), tmp_path / "out", None, None, [], None)
    odd = write(tmp_path / "odd.onnx", {"boxes": BOXES, "scores": SCORES}, notes={"names": "{0: 'only one'}"})
    with pytest.raises(CheckpointError, match=r"onnx:odd has 3 classes, but 1 names were given; .*--class-names"):
        onnx_detector(odd, tmp_path)


@pytest.mark.parametrize(
    ("outputs", "settings", "message"),
    [
        (
            {"boxes": BOXES, "scores": np.array(SCORES) * 9},
            [],
            r"scores from 5.4 to 8.1, expected probabilities; .*acti",
        ),
        ({"boxes": BOXES, "scores": SCORES}, ["box=boxes"], "an ONNX detector has no setting 'box'; did you mean"),
        (
            {"boxes": BOXES, "scores": SCORES},
            ["boxes=boks"],
            "boxes=boks: the ONNX file has no boks; did you mean boxes",
        ),
        ({"boxes": BOXES, "scores": SCORES}, ["form=corners"], "form: Input should be 'xyxy', .* found 'corners'"),
        ({"boxes": BOXES, "scores": SCORES}, ["size=64"], "size=64; the ONNX file needs 32 x 32 pixels"),
        ({"boxes": BOXES, "scores": SCORES}, ["size=big"], "size='big'; expected a number of pixels"),
        ({"boxes": BOXES, "scores": SCORES}, ["deviation=0"], "deviation=0; expected numbers above 0"),
        (
            {"boxes": BOXES, "scores": SCORES},
            ["input=image"],
            "input=image: the ONNX file has no image; did you mean",
        ),
        ({"boxes": BOXES, "scores": SCORES}, ["layout=chwn"], "layout: Input should be 'nchw', .* found 'chwn'"),
        ({"boxes": BOXES, "scores": SCORES}, ["classes=two"], "classes: Input should be a valid integer, found 'two'"),
        ({"boxes": BOXES, "labels": [[9, 0]]}, ["scores=labels", "classes=2"], "found the class number 9, expected 2"),
        (
            {"output0": np.concatenate([CENTRED, [[[1.0], [1.0]]], SCORES], 2)},
            ["outputs=rows", "form=yolox"],
            r"form=yolox needs a box for each of the 21 cells of 8, 16, 32 pixels, found 2; set another form",
        ),
        ({"boxes": [[[1.0, 2, 3]]], "scores": [[1.0]]}, [], "boxes has 3 numbers per box, expected 4"),
    ],
)
def test_what_an_onnx_file_does_not_have_is_refused(
    outputs: dict[str, Any], settings: list[str], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "net.onnx", outputs)
    with pytest.raises((RecipeError, CheckpointError), match=message):
        onnx_detector(path, tmp_path, *settings)


def test_bad_onnx_files_are_named(tmp_path: Path) -> None:
    good = write_map(tmp_path / "maps.onnx")
    (tmp_path / "cut.onnx").write_bytes(good.read_bytes()[:-40])
    (tmp_path / "empty.onnx").write_bytes(b"")
    onnx.save(onnx.load(good), tmp_path / "beside.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    for name, message in (
        ("cut", "cannot be opened"),
        ("empty", "has 0 bytes; expected an ONNX file"),
        ("none", "cannot read .*none.onnx"),
        ("beside", "its weights are in other files: export one file"),
    ):
        with pytest.raises(CheckpointError, match=message):
            open_detector(f"onnx:{tmp_path / name}.onnx", [])
    vector = write(tmp_path / "vector.onnx", {"pooled": [[1.0, 2]]})
    with pytest.raises(RecipeError, match="pooled has 2 numbers per box"):
        open_detector(f"onnx:{vector}", [], backbone=f"onnx:{good}")
    finds = write(tmp_path / "finds.onnx", {"boxes": BOXES, "scores": SCORES})
    with pytest.raises(RecipeError, match=r"no output of .* is a map .* or tokens .*; it has pooled"):
        open_detector(f"onnx:{finds}", [], backbone=f"onnx:{vector}")
    bytes_in = write(tmp_path / "bytes.onnx", {"maps": np.zeros((1, 2, 4, 4))}, kind=BYTES)
    assert open_detector(f"onnx:{bytes_in}", []).contract.feature_size == 2


def test_scores_that_are_not_finite_cost_one_picture(tmp_path: Path) -> None:
    detector = onnx_detector(write(tmp_path / "net.onnx", {"boxes": BOXES, "scores": SCORES}), tmp_path)
    assert isinstance(detector, PooledDetector)
    boxes = torch.tensor([[float("nan"), 0, 1, 1]])
    detector.proposer.propose = lambda _: [Candidates(boxes, torch.ones(1), None)]  # type: ignore[method-assign]
    with pytest.raises(DataError, match="found boxes or scores that are not finite"):
        detector.detect([SQUARE], RECORDS[:1])


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    detector = onnx_detector(write(tmp_path / "net.onnx", {"boxes": BOXES, "scores": SCORES}), tmp_path)
    detector.save(tmp_path / "kept")
    described = read_detector(tmp_path / "kept")
    del described["proposer"]["settings"]["form"]
    write_detector(tmp_path / "kept", described)
    with pytest.raises(CheckpointError, match=r"detector\.json is damaged"):
        load_detector(tmp_path / "kept")


@pytest.mark.parametrize("axes", [(1, 32, 32, 3), (1, 3, 32, 32)])
@pytest.mark.parametrize("last", [False, True])
def test_a_map_is_laid_as_its_sides_say(axes: tuple[int, ...], last: bool, tmp_path: Path) -> None:
    """An input of colours last with a map of channels first had its channels taken for rows."""
    cells = np.arange(9 * 16, dtype=np.float32).reshape(1, 9, 4, 4)
    path = write(tmp_path / "maps.onnx", {"maps": cells.transpose(0, 2, 3, 1) if last else cells}, axes)
    grid = open_detector(f"onnx:{path}", settings=["cells=4"])
    (found,) = grid.detect([SQUARE], RECORDS[:1])
    assert found.features is not None
    assert torch.equal(found.features, torch.from_numpy(cells[0]).flatten(1).T)


def test_a_map_of_equal_axes_is_laid_as_the_input(tmp_path: Path) -> None:
    cells = np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype(np.float32)
    for axes, wanted in {(1, 32, 32, 3): cells[0].reshape(16, 4), (1, 3, 32, 32): cells[0].reshape(4, 16).T}.items():
        path = write(tmp_path / "maps.onnx", {"maps": cells}, axes)
        (found,) = open_detector(f"onnx:{path}", settings=["cells=4"]).detect([SQUARE], RECORDS[:1])
        assert found.features is not None
        assert torch.equal(found.features, torch.from_numpy(wanted))


def test_the_number_of_regions_is_a_setting_too(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx", {"boxes": BOXES, "scores": SCORES, "features": np.ones((1, 2, 7))})
    rules = {("most=1",): "exactly 1, by score", ("least=0", "score=0.7"): "at most 100, score over 0.7"}
    for settings, words in rules.items():
        kept = tmp_path / words[:9]
        keep_detector(str(path), kept, settings=settings)
        assert load_detector(kept).contract.selection == f"{words}, NMS 0.5 per class"
        assert len(load_detector(kept).detect([SQUARE], RECORDS[:1])[0]) == 1
    with pytest.raises(RecipeError, match="a setting of the selection cannot be used: least: "):
        keep_detector(str(path), tmp_path / "wrong", settings=["least=many"])
    with pytest.raises(RecipeError, match="--backbone timm/NAME, onnx:FILE or FOLDER"):
        open_detector(f"onnx:{write(tmp_path / 'bare.onnx', {'boxes': BOXES, 'scores': SCORES})}")


@pytest.mark.parametrize("axes", [(1, 3, 32, 32), (1, 32, 32, 3)])
@pytest.mark.parametrize("table", [False, True])
def test_a_map_of_the_file_gives_the_features_in_one_pass(tmp_path: Path, axes: tuple[int, ...], table: bool) -> None:
    """The feature of a region is the mean of the map inside its box, as with a backbone of the same map."""
    cells = np.random.default_rng(0).normal(size=(1, 5, 4, 4)).astype(np.float32)
    laid = cells if axes[1] == 3 else cells.transpose(0, 2, 3, 1)
    boxes: dict[str, Any] = {"boxes": BOXES, "scores": SCORES}
    settings = ["features=last", "fit=letterbox"]
    if table:  # no output is named like boxes: the setting makes it a detector
        boxes = {"output": np.concatenate([BOXES, SCORES], 2)}
        settings += ["objectness=false", "form=xyxy"]
    both = open_detector(f"onnx:{write(tmp_path / 'both.onnx', boxes | {'last': laid}, axes)}", settings=settings)
    apart = open_detector(
        f"onnx:{write(tmp_path / 'boxes.onnx', boxes, axes)}",
        settings=settings[1:],
        backbone=f"onnx:{write(tmp_path / 'map.onnx', {'last': laid}, axes)}",
    )
    found, wanted = (one.detect([WIDE], RECORDS[1:2])[0] for one in (both, apart))
    assert both.contract.feature_size == 5
    assert torch.equal(found.boxes, wanted.boxes)
    assert found.features is not None
    torch.testing.assert_close(found.features, wanted.features)
    both.save(tmp_path / "kept")
    again = load_detector(tmp_path / "kept")
    assert again.contract == both.contract
    assert torch.equal(again.detect([WIDE], RECORDS[1:2])[0].features, found.features)  # type: ignore[arg-type]


def test_boxes_alone_are_not_taken_for_boxes_of_score_one(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="boxes has 4 numbers per box; expected scores after the first 4"):
        onnx_detector(write(tmp_path / "net.onnx", {"boxes": BOXES}), tmp_path)
