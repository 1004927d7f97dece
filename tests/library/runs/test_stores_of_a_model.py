"""Which stores a model accepts: those whose regions are alike in everything that it reads, and no other question."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PIL import Image
from rich.console import Console

from diptych.core import FeatureContract, Vocabulary
from diptych.data.store.several import SeveralStores
from diptych.data.store.store import Store, StoreWriter
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.predict import predict
from diptych.runs.run import run
from diptych.runs.start import Trained, fit_to
from diptych.runtime.configs import derive
from diptych.runtime.errors import DataError
from diptych.systems import RECIPES, SYSTEMS, find_recipe
from diptych.systems.recipe import Recipe
from tests.support.deciding import RECORDS
from tests.support.learning import learner_of

CONTRACT = FeatureContract("a detector", "a" * 64, 6, ("dog", "bird", "cat", "cow"), selection="10 to 36")
# A store that differs in one field -> what of the regions the field describes.
OTHERS = {
    "extractor": (replace(CONTRACT, extractor="another detector"), "features"),
    "weights": (replace(CONTRACT, weights="b" * 64), "features"),
    "feature_size": (replace(CONTRACT, feature_size=8), "features"),
    "selection": (replace(CONTRACT, selection="100"), "features"),
    "whole": (replace(CONTRACT, whole=True), "features"),
    "class_names": (replace(CONTRACT, class_names=("cat", "cow", "dog", "bird")), "classes"),
    "box_format": (replace(CONTRACT, box_format="centres"), "boxes"),
}
STORED, WITH_CLASSES, PIXELS = {"boxes", "features"}, {"boxes", "features", "classes"}, {"boxes"}
# (system, task, reads pixels): read of the store. Classes are an input of Unified VLP, and targets in pre-training.
READ = {
    **{("image-bert", task, False): STORED for task in ("retrieval", "vqa", "vcr", "referring", "nlvr")},
    ("image-bert", "pretrain", False): WITH_CLASSES,
    **{("tden", task, False): STORED for task in ("caption", "retrieval", "vqa", "vcr", "referring", "nlvr")},
    ("tden", "pretrain", False): WITH_CLASSES,
    **{("unified-vlp", task, False): WITH_CLASSES for task in ("pretrain", "caption", "retrieval", "vqa", "vcr")},
    **{("unified-vlp", task, False): WITH_CLASSES for task in ("referring", "nlvr")},
    ("vl-bert", "pretrain", False): WITH_CLASSES,
    **{("vl-bert", task, False): STORED for task in ("retrieval", "vqa", "vcr", "referring", "nlvr")},
    **{("vl-bert", task, True): PIXELS for task in ("pretrain", "vqa", "vcr", "referring")},
    **{("xgpt", task, False): STORED for task in ("pretrain", "caption", "retrieval", "vqa", "vcr", "referring")},
    ("xgpt", "nlvr", False): STORED,
    **{
        (system, task, False): WITH_CLASSES if system == "unified-vlp" else STORED
        for system in ("image-bert", "tden", "unified-vlp", "vl-bert", "xgpt")
        for task in ("classify", "entailment")
    },
}
WITHOUT_CLASSES = {"tden/pretrain/table-2-row-2", "tden/small/pretrain/table-2-row-2"}


def begun(name: str) -> Trained:
    recipe = find_recipe(name)
    config = SYSTEMS[recipe.system].resolved(**recipe.model.model_dump(), vocabulary=Vocabulary(30, 0, 1, 2, 3, 4))
    architecture = SimpleNamespace(system=recipe.system, config=config, imported=False)
    return Trained(ModelFolder(Path("there"), cast(Any, None), cast(Any, architecture), cast(Any, None), CONTRACT))


def refused(start: Trained, recipe: Recipe, contract: FeatureContract) -> str:
    try:
        start.check(recipe, cast(Store, SimpleNamespace(contract=contract, folder="store")))
    except DataError as error:
        return str(error)
    return ""


def test_a_contract_asks_for_what_is_read_and_nothing_else() -> None:
    """Every recipe, which are all systems and tasks, and every field."""
    met = set()
    for name, preset in RECIPES.items():
        recipe, start = preset(), begun(name)
        recipe = derive(recipe, init=None, network_init=None)
        of = (recipe.system, recipe.task, recipe.model.reads_pixels)
        met.add(of)
        read = STORED if name in WITHOUT_CLASSES else READ[of]
        for field, (other, part) in OTHERS.items():
            told = refused(start, recipe, other)
            assert (f"{field}: " in told) is (part in read), f"{name}, {field}: {told or 'accepted'}"
        assert refused(start, recipe, CONTRACT) == ""
    assert met == READ.keys()


def store_in(folder: Path, contract: FeatureContract) -> Store:
    """Records for referring and VCR, with features and classes of the contract's sizes."""
    with StoreWriter(folder / "store", contract) as writer:
        for number, told in enumerate(RECORDS):
            path = folder / f"{number}.png"
            Image.effect_noise((100, 80), 50).convert("RGB").save(path)
            seen = told.regions
            assert seen is not None
            assert seen.features is not None
            assert seen.classes is not None
            features = seen.features.repeat(1, 2)[:, : contract.feature_size]
            classes = seen.classes[:, : len(contract.class_names)]
            own = replace(seen, features=features, classes=classes)
            split = "train" if number < 3 else "val"
            writer.add(replace(told, key=f"r{number}", split=split, captions=("a dog",), image=path, regions=own))
    return Store(folder / "store")


ANNOTATED = FeatureContract("given", "", 8, ("cat", "cow", "dog"))
DETECTED = FeatureContract("given: MAttNet", "", 6, ("dog", "bird", "cat", "cow"))
SHAPE = [
    "model.network=resnet18", "model.network_cells=2", "model.network_frozen=0", "model.width=16", "model.layers=1",
    "model.heads=2", "model.ffn=32",
]  # fmt: skip
SHORT = [
    "init=none",
    "network_init=none",
    "training.batch=2",
    "training.micro_batch=2",
    "training.steps=1",
    "training.precision=fp32",
]
SHORT += [
    "training.validate_every=null",
    "training.average_best=0",
    "data.pixels_shorter=32",
    "optimizer.warmup_steps=0",
]


@pytest.mark.learns
@pytest.mark.large
def test_a_model_of_pixels_goes_from_detected_boxes_to_annotated_ones(tmp_path: Path) -> None:
    """As in VL-BERT's Tables 2 and 4."""
    detected, annotated = store_in(tmp_path / "a", DETECTED), store_in(tmp_path / "b", ANNOTATED)
    quiet = Console(quiet=True)
    run(find_recipe("vl-bert/pretrain", [*SHAPE, *SHORT]), detected, tmp_path / "vlb", console=quiet)
    start = open_model(tmp_path / "vlb")
    for task, heads in (("referring", ""), ("vcr", "region_class")):
        told = Console(record=True, quiet=False, width=300)
        steps = ["optimizer.milestones=[1]"] if task == "vcr" else []
        recipe = fit_to(find_recipe(f"vl-bert/{task}", [*SHORT, *steps]), start)
        tuned = run(recipe, annotated, tmp_path / task, start, told).model
        assert tuned.contract == annotated.contract
        said = told.export_text()
        assert ("its heads for other classes or answers get random weights: " + heads in said) is bool(heads)
        opened = open_model(tmp_path / task)
        assert len(predict(opened, annotated, "val").predictions) == len(predict(opened, detected, "val").predictions)


def test_stores_of_other_boxes_are_mixed_for_a_model_of_pixels_alone(tmp_path: Path) -> None:
    stores = {"a": store_in(tmp_path / "a", DETECTED), "b": store_in(tmp_path / "b", ANNOTATED)}
    recipe = find_recipe("vl-bert/pretrain", [*SHAPE, *SHORT, "data.split=a+b"])
    with pytest.raises(DataError, match="class_names: 4 names, not"):
        SeveralStores(stores, recipe.reads)
    recipe = recipe.override(["objectives.region_classes=0"])
    both = SeveralStores(stores, recipe.reads)
    assert both.record(0).regions is not None
    learner = learner_of(tmp_path / "out", recipe, both)
    batch = learner.batches().at(0, 0, 1)
    assert batch.features is None
    assert batch.classes is None
    assert batch.pixels is not None
