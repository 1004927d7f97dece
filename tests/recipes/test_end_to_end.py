"""A run that looks at pixels: trained, saved, opened, asked; what cannot be read is counted."""

from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console

from diptych.core import FeatureContract, Question, Record
from diptych.loading.store import Store, StoreWriter
from diptych.recipes import find_recipe
from diptych.recipes.folder import open_model
from diptych.recipes.plan import plan
from diptych.recipes.run import evaluate, fit_to, predict, run
from tests import toy
from tests.deciding import RECORDS

QUIET = Console(quiet=True)
TINY = [
    "model.width=16",
    "model.layers=1",
    "model.heads=2",
    "model.ffn=32",
    "training.batch=4",
    "training.steps=2",
    "training.precision=fp32",
    "data.pixels_shorter=32",
]


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


def test_from_pixels_to_answers(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    done = run(find_recipe("vl-bert/small/end-to-end", TINY), store, tmp_path / "run", console=QUIET)
    start = open_model(tmp_path / "run")
    assert any(name.startswith("regions.network.") for name in done.model.model.state_dict())
    own = [change for change in TINY if not change.startswith("model.")]
    recipe = fit_to(find_recipe("vl-bert/small/vqa", own), start)
    tuned = run(recipe, store, tmp_path / "vqa", start, console=QUIET)
    predictions, scores = evaluate(tuned.model, store, "val")
    assert [p["answer"] for p in predictions] == ["dog"]  # the one answer that there is
    assert scores["accuracy"] == 100


def test_vcr_from_pixels_and_masks(tmp_path: Path) -> None:
    """The things' own boxes, with outlines, as VCR has them; half of the samples mirrored."""
    contract = FeatureContract("given", "", feature_size=6, class_names=tuple("abcd"))
    with StoreWriter(tmp_path / "store", contract) as writer:
        for number, told in enumerate(RECORDS):
            path = tmp_path / f"{number}.png"
            Image.effect_noise((100, 80), 50).convert("RGB").save(path)
            assert told.regions is not None
            masks = torch.rand(len(told.regions), 14, 14, generator=torch.Generator().manual_seed(number)) < 0.5
            seen = replace(told.regions, masks=masks)
            writer.add(
                replace(told, key=f"r{number}", split="train" if number < 3 else "val", picture=path, regions=seen)
            )
    store = Store(tmp_path / "store")
    recipe = find_recipe("vl-bert/official/vcr", [*TINY, "model.network=resnet18", "data.vocabulary=null"])
    recipe = recipe.override(["training.batch=2", "training.micro_batch=1", "optimizer.milestones=[1]"])
    batch = plan(recipe, store, tmp_path / "none", None).batches().at(0, 0, 1)
    assert batch.masks is not None
    assert batch.masks.shape[2:] == (14, 14)
    assert len(batch) == 8  # two questions of four texts
    done = run(recipe, store, tmp_path / "run", console=QUIET)
    said, scores = evaluate(done.model, store, "val")
    assert len(said) == 8
    assert set(scores) == {"Q->A", "QA->R", "Q->AR"}


def test_a_picture_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    recipe = find_recipe("vl-bert/small/end-to-end", [*TINY, "training.batch=7"])
    batches = plan(recipe, store_in(tmp_path, broken=(1,)), tmp_path / "run", None).batches()
    assert len(batches.at(0, 0, 1)) == 6
    assert list(batches.corrupt) == ["r1"]


def test_it_is_left_out_of_what_is_asked_too(tmp_path: Path) -> None:
    store = store_in(tmp_path, broken=(6,), val=(5, 6, 7))
    recipe = find_recipe("vl-bert/small/vqa", [*TINY, "model.network=resnet18"])
    model = run(recipe, store, tmp_path / "run", console=QUIET).model  # validates on val
    said = predict(model, store, "val")
    assert [record.key for record in said.records] == ["r5", "r7"]
    assert len(said.predictions) == 2
    (why,) = said.damaged
    assert str(tmp_path / "6.png") in why


def test_stages_that_are_frozen_at_random_are_told(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    frozen = find_recipe("vl-bert/small/end-to-end", [*TINY, "model.network_frozen=2"])
    told = " ".join(plan(frozen, store, tmp_path / "run", None).notes())
    assert "the first 2 stages of resnet18 are frozen" in told
    assert "--set model.network_frozen=0" in told
    assert "diptych import" in told
    learning = frozen.override(["model.network_frozen=0"])
    assert "frozen" not in " ".join(plan(learning, store, tmp_path / "run", None).notes())


def test_texts_that_are_cut_are_counted(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for name, kind, longest in (("pretrain", "captions", 2), ("vqa", "questions", 4)):
        recipe = find_recipe(f"vl-bert/small/{name}", [*TINY, "data.max_words=1"])
        told = " ".join(plan(recipe, store, tmp_path / "run", None).notes())
        assert f"7 of 7 {kind} are longer than 1 words or pieces and are cut; data.max_words={longest}" in told
        whole = recipe.override([f"data.max_words={longest}"])
        assert "are cut" not in " ".join(plan(whole, store, tmp_path / "run", None).notes())
