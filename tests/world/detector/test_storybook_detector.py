"""The small detector: what it is taught, that it learns, and that it is the same after a save."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from diptych.core import IGNORE, Object, Record
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems import find_selection
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import open_detector
from diptych.vision.detectors.selection import Selection
from diptych.vision.detectors.weights import read_detector, write_detector
from diptych_world.detector.detector import StorybookDetector
from diptych_world.detector.network import STRIDE, DetectorConfig, Maps, SmallDetector
from diptych_world.detector.training import Detection, centre_spots, detection_batch

SHAPE = DetectorConfig(
    kinds=("square", "bar"),
    attributes={"colour": ("red", "blue")},
    scene={"place": ("dark", "light")},
    side=64,
    feature_size=16,
    widths=(24, 24, 24),
)
COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


def toy(number: int) -> tuple[torch.Tensor, Record, dict[str, str]]:
    """Two red or blue squares or bars on a dark or a light ground; every third picture is high, every third wide."""
    width, height = ((64, 64), (64, 96), (96, 64))[number % 3]
    rng = torch.Generator().manual_seed(number)
    place = ("dark", "light")[number % 2]
    picture = torch.full((3, height, width), {"dark": 60, "light": 200}[place], dtype=torch.uint8)
    objects = []
    for half in range(2):
        kind = SHAPE.kinds[int(torch.randint(2, (), generator=rng))]
        colour = ("red", "blue")[int(torch.randint(2, (), generator=rng))]
        w, h = (16, 16) if kind == "square" else (24, 8)
        x = int(torch.randint(width - w, (), generator=rng))
        y = half * height // 2 + int(torch.randint(height // 2 - h, (), generator=rng))
        picture[:, y : y + h, x : x + w] = torch.tensor(COLOURS[colour], dtype=torch.uint8)[:, None, None]
        box = (x / width, y / height, (x + w) / width, (y + h) / height)
        objects.append(Object(kind, box, {"colour": colour}))
    return picture, Record(f"toy/{number}", objects=tuple(objects)), {"place": place}


def toys(numbers: range) -> tuple[list[torch.Tensor], list[Record], list[dict[str, str]]]:
    pictures, records, scenes = zip(*(toy(n) for n in numbers), strict=True)
    return list(pictures), list(records), list(scenes)


def learnt(steps: int) -> tuple[SmallDetector, list[float]]:
    torch.manual_seed(0)
    network = SmallDetector(SHAPE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3, fused=True)
    update, totals = Detection(), []
    for step in range(steps):
        batch = detection_batch(SHAPE, *toys(range(8 * step, 8 * step + 8)))
        losses, counts = next(update.losses(network, batch)), update.counts(batch)
        total = sum((losses[name] / counts[name] for name in losses), torch.zeros(()))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(float(total.detach()))
    return network, totals


@pytest.fixture(scope="module")
def trained() -> tuple[SmallDetector, list[float]]:
    return learnt(150)


@pytest.mark.slow
def test_it_learns_where_things_are_and_what_they_look_like(trained: tuple[SmallDetector, list[float]]) -> None:
    network, totals = trained
    assert sum(totals[-10:]) < 0.25 * sum(totals[:10])
    detector = StorybookDetector(network, Selection(most=2, least=2, overlap=0.5, per_class=False))
    pictures, records, scenes = toys(range(10_000, 10_020))
    right = {"box": 0, "kind": 0, "colour": 0, "place": 0}
    for seen, record, scene in zip(detector.detect(pictures, records), records, scenes, strict=True):
        objects = sorted(record.objects, key=lambda thing: thing.box[1])
        regions = seen.take(seen.boxes[:, 1].argsort())
        assert regions.features is not None
        assert regions.classes is not None
        assert regions.whole is not None
        colours = network.region_heads["colour"](regions.features).argmax(1)
        place = int(network.scene_heads["place"](regions.whole).argmax())
        right["place"] += SHAPE.scene["place"][place] == scene["place"]
        for row, thing in enumerate(objects):
            right["box"] += bool((regions.boxes[row] - torch.tensor(thing.box)).abs().max() < 0.1)
            right["kind"] += SHAPE.class_names[int(regions.classes[row].argmax())] == thing.kind
            right["colour"] += ("red", "blue")[int(colours[row])] == thing.attributes["colour"]
    assert right["box"] >= 32, right
    assert right["kind"] >= 32, right
    assert right["colour"] >= 36, right
    assert right["place"] >= 19, right


def test_a_larger_picture_gives_the_same_boxes(trained: tuple[SmallDetector, list[float]]) -> None:
    detector = StorybookDetector(trained[0], Selection(most=2, least=2))
    picture, record, _ = toy(10_002)
    double = picture.repeat_interleave(2, 1).repeat_interleave(2, 2)
    once, twice = (detector.detect([p], [record])[0] for p in (picture, double))
    assert (once.size, twice.size) == ((64, 64), (128, 128))
    torch.testing.assert_close(once.boxes, twice.boxes, atol=0.02, rtol=0)


def test_a_batch_and_one_by_one_give_the_same(trained: tuple[SmallDetector, list[float]]) -> None:
    detector = StorybookDetector(trained[0])
    pictures, records, _ = toys(range(4))
    together = detector.detect(pictures, records)
    for picture, record, regions in zip(pictures, records, together, strict=True):
        alone = detector.detect([picture], [record])[0]
        torch.testing.assert_close(alone.boxes, regions.boxes, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(alone.features, regions.features, atol=1e-3, rtol=1e-3)
    assert detector.detect([], []) == []


def test_exactly_n_regions_are_found(trained: tuple[SmallDetector, list[float]]) -> None:
    regions = StorybookDetector(trained[0], Selection(most=60, least=60)).detect([toy(1)[0]], [toy(1)[1]])[0]
    assert len(regions) == 60
    assert ((regions.boxes >= 0) & (regions.boxes <= 1)).all()


def test_a_saved_detector_is_the_same_and_may_be_moved(
    trained: tuple[SmallDetector, list[float]], tmp_path: Path
) -> None:
    detector = StorybookDetector(trained[0], Selection(most=3, least=1))
    detector.save(tmp_path / "detector")
    (tmp_path / "detector").rename(tmp_path / "moved")
    again = load_detector(tmp_path / "moved")
    assert isinstance(again, Detector)
    assert again.contract == detector.contract
    assert len(again.contract.weights) == 64
    picture, record, _ = toy(3)
    mine, theirs = detector.detect([picture], [record])[0], again.detect([picture], [record])[0]
    for name, value in mine.tensors().items():
        assert torch.equal(value, theirs.tensors()[name]), name


def test_another_rule_may_be_given_at_opening(tmp_path: Path) -> None:
    StorybookDetector(SmallDetector(SHAPE)).save(tmp_path / "detector")
    detector = load_detector(tmp_path / "detector", Selection(most=7, least=7))
    assert detector.contract.selection == "exactly 7, by score, NMS 0.5 per class"
    assert len(detector.detect([toy(0)[0]], [toy(0)[1]])[0]) == 7
    fewer = open_detector(str(tmp_path / "detector"), select=3)
    assert fewer.contract.selection == "exactly 3, score over 0.3, NMS 0.6 per class"
    assert len(fewer.detect([toy(0)[0]], [toy(0)[1]])[0]) == 3
    with pytest.raises(RecipeError, match="no selection 'few'; expected a number of regions or a rule"):
        find_selection("few")
    with pytest.raises(RecipeError, match="least=0 and most=0"):
        open_detector(str(tmp_path / "detector"), select=0)
    GroundTruth(("cat",), {}).save(tmp_path / "truth")
    with pytest.raises(RecipeError, match="ground-truth does not accept a selection rule"):
        load_detector(tmp_path / "truth", Selection())


def test_other_weights_have_another_contract(trained: tuple[SmallDetector, list[float]]) -> None:
    other = StorybookDetector(SmallDetector(SHAPE)).contract
    assert other.differences(StorybookDetector(trained[0]).contract) == [
        f"weights: {other.weights[:12]}…, not {StorybookDetector(trained[0]).contract.weights[:12]}…"
    ]


def test_damaged_folders_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a detector's folder"):
        load_detector(tmp_path)
    detector = StorybookDetector(SmallDetector(SHAPE))
    detector.save(tmp_path)
    content = (tmp_path / "detector.safetensors").read_bytes()
    (tmp_path / "detector.safetensors").write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"does not match detector\.json"):
        load_detector(tmp_path)
    (tmp_path / "detector.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*detector\.safetensors"):
        load_detector(tmp_path)
    write_detector(tmp_path, read_detector(tmp_path) | {"kind": "storybok-detector"})
    with pytest.raises(CheckpointError, match="did you mean storybook-detector"):
        load_detector(tmp_path)
    (tmp_path / "detector.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        load_detector(tmp_path)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    StorybookDetector(SmallDetector(SHAPE)).save(tmp_path)
    described = read_detector(tmp_path)
    described["shape"]["feature_size"] = 32
    write_detector(tmp_path, described)
    with pytest.raises(CheckpointError, match=r"belongs to another network: .* has shape .*, expected"):
        load_detector(tmp_path)


def test_the_truth_of_a_batch() -> None:
    wide = torch.zeros(3, 32, 64, dtype=torch.uint8)
    records = [
        Record(
            "a",
            objects=(Object("bar", (0.5, 0.5, 1.0, 1.0), {"colour": "blue"}), Object("square", (0.0, 0.0, 0.1, 0.1))),
        ),
        Record("b"),
    ]
    batch = detection_batch(SHAPE, [wide, toy(3)[0]], records, [{"place": "light"}, {}])
    assert batch.boxes[0, 0].tolist() == [0.5, 0.25, 1, 0.5]  # the picture covers the upper half of its square
    assert batch.kinds.tolist() == [[1, 0], [IGNORE, IGNORE]]
    assert batch.attributes["colour"].tolist() == [[1, IGNORE], [IGNORE, IGNORE]]
    assert batch.scene["place"].tolist() == [1, IGNORE]
    assert {name: int(n) for name, n in Detection().counts(batch).items()} == {
        "heat": 2, "sides": 2, "kind": 2, "moves": 2, "colour": 1, "place": 1,
    }  # fmt: skip
    with pytest.raises(DataError, match=r"unknown object kind 'tree'; train a new detector .record c"):
        detection_batch(SHAPE, [wide], [Record("c", objects=(Object("tree", (0.0, 0.0, 1.0, 1.0)),))])


def test_a_centre_is_taught_in_the_cell_that_holds_it() -> None:
    record = Record("a", objects=(Object("bar", (0.25, 0.5, 0.75, 0.6)),))
    batch = detection_batch(SHAPE, [toy(0)[0]], [record])
    spots = centre_spots(batch, 16, 16, 64)[0, 0]
    assert (spots == 1).nonzero().tolist() == [[8, 8]]
    assert spots[8, 9] > spots[9, 8]  # wider than high


def test_the_losses_of_a_perfect_answer() -> None:
    """Every cell tells the right box, and the heat is right: what is left is what overlapping spots cost."""
    record = Record("a", objects=(Object("bar", (0.25, 0.5, 0.75, 0.75), {"colour": "red"}),))
    batch = detection_batch(SHAPE, [toy(0)[0]], [record])
    network = SmallDetector(SHAPE)
    across = (torch.arange(16) + 0.5) * STRIDE
    sides = torch.stack(torch.broadcast_tensors(
        across - 16, across[:, None] - 32, 48 - across, 48 - across[:, None]))[None]  # fmt: skip
    heat = torch.full((1, 16, 16), -20.0)
    heat[0, 10, 8] = 20
    assert network.boxes(sides)[0, 100].tolist() == pytest.approx([0.25, 0.5, 0.75, 0.75])

    class Perfect(SmallDetector):
        def forward(self, squares: torch.Tensor) -> Maps:
            return Maps(heat, sides, torch.zeros(1, 32, 16, 16), torch.zeros(1, 32, 32, 32), torch.zeros(1, 16))

    perfect = Perfect(SHAPE)
    losses = next(Detection().losses(perfect, batch))
    assert float(losses["heat"]) < 1e-4
    assert float(losses["sides"]) < 1e-5
    feature = perfect.describe(perfect(batch.squares), torch.zeros(1, 1, 4))[0]
    assert losses["kind"].shape == cross_entropy(perfect.region_heads["kind"](feature), torch.tensor([1])).shape
    heat[0, 10, 8] = -20
    assert float(next(Detection().losses(perfect, batch))["heat"].detach()) == pytest.approx(20, abs=0.01)


def test_a_picture_without_things_costs_only_its_false_heat() -> None:
    batch = detection_batch(SHAPE, [toy(0)[0]], [Record("empty")])
    losses = next(Detection().losses(SmallDetector(SHAPE), batch))
    assert losses["sides"].item() == losses["moves"].item() == losses["colour"].item() == 0
    assert losses["heat"].item() > 0
    assert int(Detection().counts(batch)["heat"]) == 0
