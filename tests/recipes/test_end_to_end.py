"""A run that looks at pixels: trained, saved, opened, asked; what cannot be read is counted."""

from pathlib import Path

from PIL import Image
from rich.console import Console

from diptych.core import FeatureContract, Question, Record
from diptych.loading.store import Store, StoreWriter
from diptych.recipes import find_recipe
from diptych.recipes.folder import open_model
from diptych.recipes.run import evaluate, fit_to, run
from tests import toy

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


def store_in(folder: Path, broken: bool = False) -> Store:
    contract = FeatureContract("given", "", feature_size=6, class_names=tuple("abcd"))
    with StoreWriter(folder / "store", contract) as writer:
        for number in range(8):
            path = folder / f"{number}.png"
            Image.effect_noise((100, 80), 50).convert("RGB").save(path)
            if broken and number == 1:
                path.write_bytes(path.read_bytes()[:200])
            asked = (Question(f"q{number}", "what is it?", ("dog",) * 10),)
            split = "val" if number == 7 else "train"
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


def test_a_picture_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    from diptych.recipes.plan import plan

    recipe = find_recipe("vl-bert/small/end-to-end", [*TINY, "training.batch=7"])
    batches = plan(recipe, store_in(tmp_path, broken=True), tmp_path / "run", None).batches()
    assert len(batches.at(0, 0, 1)) == 6
    assert list(batches.corrupt) == ["r1"]
