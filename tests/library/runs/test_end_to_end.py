"""A run that reads pixels: trained, saved, opened, asked; what cannot be read is counted."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file
from torchvision.models import resnet18, resnet50

from diptych.core import FeatureContract, Question, Record
from diptych.data.store.store import Store, StoreWriter
from diptych.objectives import SeenRegionClass
from diptych.runs.folder import open_model
from diptych.runs.predict import predict
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.weight_files import read_weights
from diptych.systems import find_recipe
from diptych.systems.vl_bert.model import VLBertConfig
from diptych.systems.vl_bert.network import FastRCNN, begin_from_resnet
from diptych.vision.detectors.faster_rcnn import FasterRCNN, FasterRCNNConfig
from tests.support import scenes, toy
from tests.support.deciding import RECORDS
from tests.support.learning import learner_of, notes_of

pytestmark = pytest.mark.learns

QUIET = Console(quiet=True)
TINY = [*scenes.TINY, "training.batch=4", "training.steps=2", "training.precision=fp32", "data.pixels_shorter=32"]
EYES = ["model.network=resnet18", "model.network_cells=2"]


def store_in(folder: Path, broken: tuple[int, ...] = (), val: tuple[int, ...] = (7,)) -> Store:
    contract = FeatureContract("given", "", feature_size=6, class_names=tuple("abcd"))
    with StoreWriter(folder / "store", contract) as writer:
        for number in range(8):
            path = folder / f"{number}.png"
            Image.effect_noise((100, 80), 50).convert("RGB").save(path)
            if number in broken:
                path.write_bytes(path.read_bytes()[:200])
            asked = (Question(f"q{number}", "what is it?", ("dog",) * 10),)
            split = "val" if number in val else "train"
            seen = toy.regions(2, number)
            writer.add(Record(f"r{number}", split, path, (100, 80), ("a dog",), questions=asked, regions=seen))
    return Store(folder / "store")


@pytest.mark.large
def test_from_pixels_to_answers(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    done = run(find_recipe("vl-bert/small/end-to-end", TINY), store, tmp_path / "run", console=QUIET)
    start = open_model(tmp_path / "run")
    assert any(name.startswith("regions.network.") for name in done.model.model.state_dict())
    own = [change for change in TINY if not change.startswith("model.")]
    recipe = fit_to(find_recipe("vl-bert/small/vqa", own), start)
    tuned = run(recipe, store, tmp_path / "vqa", start, console=QUIET)
    predicted = predict(tuned.model, store, "val")
    predictions, scores = predicted.predictions, predicted.scores
    assert [p["answer"] for p in predictions] == ["dog"]  # the one answer that there is
    assert scores["accuracy"] == 100


@pytest.mark.large
def test_vcr_from_pixels_and_masks(tmp_path: Path) -> None:
    """The objects' own boxes, with outlines, as VCR has them; half of the samples mirrored."""
    contract = FeatureContract("given", "", feature_size=6, class_names=tuple("abcd"))
    with StoreWriter(tmp_path / "store", contract) as writer:
        for number, told in enumerate(RECORDS):
            path = tmp_path / f"{number}.png"
            Image.effect_noise((100, 80), 50).convert("RGB").save(path)
            assert told.regions is not None
            masks = torch.rand(len(told.regions), 14, 14, generator=torch.Generator().manual_seed(number)) < 0.5
            seen = replace(told.regions, masks=masks)
            writer.add(
                replace(told, key=f"r{number}", split="train" if number < 3 else "val", image=path, regions=seen)
            )
    store = Store(tmp_path / "store")
    recipe = find_recipe("vl-bert/official/vcr", [*TINY, *EYES, "data.vocabulary=null"])
    recipe = recipe.override(
        ["init=none", "network_init=none", "training.batch=2", "training.micro_batch=1", "optimizer.milestones=[1]"]
    )
    batch = learner_of(tmp_path / "none", recipe, store).batches().at(0, 0, 1)
    assert batch.masks is not None
    assert batch.masks.shape[2:] == (14, 14)
    assert len(batch) == 8  # two questions of four texts
    done = run(recipe, store, tmp_path / "run", console=QUIET)
    predicted = predict(done.model, store, "val")
    said, scores = predicted.predictions, predicted.scores
    assert len(said) == 8
    assert set(scores) == {"Q->A", "QA->R", "Q->AR"}


def eyes_in(folder: Path, architecture: str = "resnet18_fpn") -> FasterRCNN:
    """A Faster R-CNN of random weights and statistics, saved as `diptych storybook detector` saves its own."""
    torch.manual_seed(1)
    shape = FasterRCNNConfig(architecture, ("background", "dog"), shorter=32, longer=64)
    detector = FasterRCNN(shape.build(), shape)
    for part in detector.network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.running_mean)
    detector.save(folder)
    return detector


@pytest.mark.large
def test_the_network_begins_as_that_of_a_detector(tmp_path: Path) -> None:
    store, body = store_in(tmp_path), eyes_in(tmp_path / "detector").network.backbone.body
    torch.save({"state_dict": body.state_dict()}, tmp_path / "resnet18.pth")  # names as torchvision has them
    for source in ("detector", "resnet18.pth"):
        still = ["optimizer.lr_multipliers.regions.network.=0", f"network_init={tmp_path / source}"]
        done = run(
            find_recipe("vl-bert/small/end-to-end", [*TINY, *still]), store, tmp_path / f"of-{source}", console=QUIET
        )
        begun = done.model.model.state_dict()
        for name, tensor in body.state_dict().items():
            inner = name.replace("layer4.", "head.") if name.startswith("layer4.") else f"backbone.{name}"
            assert torch.equal(begun[f"regions.network.{inner}"], tensor), name


@pytest.mark.large
def test_a_network_that_begins_as_a_detector_is_not_frozen_by_chance(tmp_path: Path) -> None:
    eyes_in(tmp_path / "detector")
    recipe = find_recipe("vl-bert/small/end-to-end", [*TINY, "model.network_frozen=2"])
    given = recipe.override([f"network_init={tmp_path / 'detector'}"])
    assert "frozen" not in " ".join(notes_of(tmp_path / "run", given, store_in(tmp_path)))


@pytest.mark.large
def test_what_a_network_cannot_begin_as(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    eyes_in(tmp_path / "detector")
    eyes_in(tmp_path / "larger", "resnet34_fpn")
    whole = resnet18(weights=None).state_dict()
    torch.save({n: tensor for n, tensor in whole.items() if "layer2.1" not in n}, tmp_path / "smaller.pth")
    save_file({"weight": torch.ones(1)}, tmp_path / "other.safetensors")
    for source, told in (
        ("larger", "is not model.network \\(backbone.layer1.2"),
        ("smaller.pth", "is not model.network \\(backbone.layer2.1"),
        ("other.safetensors", "holds no ResNet: .*diptych storybook detector"),
        ("store", "is not a detector's folder: it has no detector.json"),
        ("none.pth", "missing; expected a file of weights"),
    ):
        recipe = find_recipe("vl-bert/small/end-to-end", [*TINY, f"network_init={tmp_path / source}"])
        with pytest.raises(CheckpointError, match=told):
            run(recipe, store, tmp_path / "run", console=QUIET)
    on_features = find_recipe("vl-bert/small/vqa", [*TINY, f"network_init={tmp_path / 'detector'}"])
    with pytest.raises(
        RecipeError, match=r"of a detector's layers, but the model has no such layers; set model\.network"
    ):
        run(on_features, store, tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()
    start = run(find_recipe("vl-bert/small/end-to-end", TINY), store, tmp_path / "first", console=QUIET).model
    with pytest.raises(RecipeError, match="`network_init` and --model are mutually exclusive"):
        run(fit_to(on_features, start), store, tmp_path / "run", start, QUIET)


@pytest.mark.large
def test_weights_of_torchvisions_kind_are_read_as_they_were_made(tmp_path: Path) -> None:
    """RGB, and a stage's stride in the 3 x 3 convolution of a bottleneck."""
    store = store_in(tmp_path)
    whole = resnet50(weights=None)
    torch.save(whole.state_dict(), tmp_path / "resnet50.pth")
    given = [*TINY, f"network_init={tmp_path / 'resnet50.pth'}", "model.network=resnet50", "data.pixels_colours=bgr"]
    recipe = find_recipe("vl-bert/small/end-to-end", given)
    with pytest.raises(RecipeError, match=r"which need --set data\.pixels_colours=rgb --set model\.network_stride=3x3"):
        run(recipe, store, tmp_path / "run", console=QUIET)
    network = FastRCNN("resnet50", stride="3x3").eval()
    begin_from_resnet(network, read_weights(tmp_path / "resnet50.pth"), "resnet50.pth")
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    until_4 = torch.nn.Sequential(*list(whole.eval().children())[:7])
    torch.testing.assert_close(network.maps(pixels), until_4(pixels))


@pytest.mark.large
def test_what_goes_on_reads_pictures_as_it_was_taught(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    shares = [
        "data.pixels_colours=bgr",
        "optimizer.lr_multipliers.regions.network.=0.5",
        "optimizer.lr_multipliers.text.=0.1",
    ]
    start = run(find_recipe("vl-bert/small/end-to-end", [*TINY, *shares]), store, tmp_path / "run", console=QUIET).model
    on = fit_to(find_recipe("vl-bert/small/referring"), start)
    assert (on.data.pixels_shorter, on.data.pixels_longer, on.data.pixels_colours) == (32, 192, "bgr")
    assert on.optimizer.lr_multipliers == {"regions.network.": 0.5}
    stored = [setting for setting in TINY if "pixels" not in setting]
    blind = run(find_recipe("vl-bert/small/pretrain", stored), store, tmp_path / "stored", console=QUIET).model
    on = fit_to(find_recipe("vl-bert/small/end-to-end"), blind)
    assert isinstance(on.model, VLBertConfig)
    assert on.model.network is None
    assert on.optimizer.lr_multipliers == {}
    on.override([])  # classes from pixels are not asked, or it would be refused


@pytest.mark.large
def test_classes_told_from_pixels_teach_the_network_alone(tmp_path: Path) -> None:
    """In fine-tuning too; a region that is hidden is not asked."""
    store = store_in(tmp_path)
    recipe = find_recipe("vl-bert/small/vqa", [*TINY, *EYES])
    chosen = learner_of(tmp_path / "run", recipe.override(["objectives.seen_classes=1"]), store)
    assert {objective.name for objective in chosen.schedule.objectives} == {"answer", "seen_region_class"}
    batch, model = chosen.batches().at(0, 0, 1), chosen.architecture.build()
    assert batch.hidden.sum() == 0
    half = torch.zeros_like(batch.hidden)
    half[:, 0] = True
    asked = SeenRegionClass()
    assert int(asked.count(replace(batch, hidden=half))) == int(asked.count(batch)) - len(batch)
    asked.loss(model, model(batch), batch).backward()
    learnt = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
    assert {name.removeprefix("heads.seen_class.") for name in learnt if not name.startswith("regions.network.")} == {
        "weight", "bias",
    }  # fmt: skip
    assert any(name.startswith("regions.network.head.") for name in learnt)
    with pytest.raises(RecipeError, match="seen_region_class needs pixels"):
        find_recipe("vl-bert/small/vqa", [*TINY, "objectives.seen_classes=1"])


def test_a_picture_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    recipe = find_recipe("vl-bert/small/end-to-end", [*TINY, "training.batch=7"])
    batches = learner_of(tmp_path / "run", recipe, store_in(tmp_path, broken=(1,))).batches()
    assert len(batches.at(0, 0, 1)) == 6
    assert list(batches.corrupt) == ["r1"]


@pytest.mark.large
def test_it_is_left_out_of_what_is_asked_too(tmp_path: Path) -> None:
    store = store_in(tmp_path, broken=(6,), val=(5, 6, 7))
    recipe = find_recipe("vl-bert/small/vqa", [*TINY, *EYES])
    model = run(recipe, store, tmp_path / "run", console=QUIET).model  # validates on val
    said = predict(model, store, "val")
    assert [record.key for record in said.records] == ["r5", "r7"]
    assert len(said.predictions) == 2
    (why,) = said.damaged
    assert str(tmp_path / "6.png") in why


def test_stages_that_are_frozen_at_random_are_told(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    frozen = find_recipe("vl-bert/small/end-to-end", [*TINY, "model.network_frozen=2"])
    told = " ".join(notes_of(tmp_path / "run", frozen, store))
    assert "the first 2 stages of the network that reads pixels are frozen" in told
    assert "--set model.network_frozen=0" in told
    assert "diptych import" in told
    learning = frozen.override(["model.network_frozen=0"])
    assert "frozen" not in " ".join(notes_of(tmp_path / "run", learning, store))


def test_texts_that_are_cut_are_counted(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for name, kind, longest in (("pretrain", "captions", 2), ("vqa", "questions", 4)):
        recipe = find_recipe(f"vl-bert/small/{name}", [*TINY, "data.max_words=1"])
        told = " ".join(notes_of(tmp_path / "run", recipe, store))
        assert f"7 of 7 {kind} are longer than 1 tokens and are cut; data.max_words={longest}" in told
        whole = recipe.override([f"data.max_words={longest}"])
        assert "are cut" not in " ".join(notes_of(tmp_path / "run", whole, store))


def test_words_that_leave_no_room_for_regions_are_refused(tmp_path: Path) -> None:
    store, official = store_in(tmp_path), "model.region_budget=official"
    many = find_recipe("vl-bert/small/vqa", [*TINY, official, "data.max_words=40"])
    with pytest.raises(
        RecipeError, match=r"has 32 positions.*data.max_words=40 needs 43; .*or set model\.region_budget=paper"
    ):
        learner_of(tmp_path / "run", many, store)
    recipe = find_recipe("vl-bert/small/vqa", [*TINY, "data.max_words=1", "model.positions=8"])
    told = " ".join(notes_of(tmp_path / "run", recipe, store))
    assert "are cut; the longest has 4" in told


@pytest.mark.parametrize("system", ["unified-vlp", "xgpt"])
def test_regions_that_weights_depend_on_stay_as_many(system: str, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    small = [*(setting for setting in TINY if "pixels" not in setting), "model.max_regions=8"]
    start = run(find_recipe(f"{system}/small/pretrain", small), store, tmp_path / "run", console=QUIET).model
    other = fit_to(find_recipe(f"{system}/small/vqa"), start).override(["model.max_regions=9"])
    with pytest.raises(RecipeError, match=r"max_regions=9: .* built with 8; set it to 8"):
        run(other, store, tmp_path / "other", start, QUIET)
