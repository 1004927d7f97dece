"""From what a run begins: a model that keeps its structure, what a paper says, or nothing, and never in silence."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from diptych.api.job import Options, finetuning
from diptych.core import FeatureContract, Question, Record, Vocabulary
from diptych.data.store.store import Store, StoreWriter
from diptych.data.store.tokens import SPECIAL, Tokens
from diptych.runs.folder import ModelFolder
from diptych.runs.start import Nothing, Start, fit_named, fit_to
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.systems import RECIPES, SYSTEMS, find_recipe, find_stages
from diptych.systems.recipe import OF_STORE, Recipe
from diptych.testing.case import toy_regions
from diptych.vision.detectors.weights import fingerprint, write_detector
from tests.support.learning import learner_of
from tests.support.scenes import scene_store


def built(name: str, **changes: Any) -> ModelFolder:
    """All of a model folder that a recipe is fitted to."""
    recipe = find_recipe(name)
    shape = recipe.model.model_dump() | changes
    config = SYSTEMS[recipe.system].resolved(**shape, vocabulary=Vocabulary(30, 0, 1, 2, 3, 4))
    architecture = SimpleNamespace(system=recipe.system, config=config)
    return cast(ModelFolder, SimpleNamespace(folder=Path("there"), architecture=architecture, recipe=recipe))


def store_in(folder: Path) -> Store:
    return scene_store(folder / "store", {"train": 4})


@pytest.mark.parametrize(
    ("recipe", "start", "wanted"),
    [
        (
            "xgpt/caption/table-3-tiny-enc",
            "xgpt/pretrain",
            "structure=enc instead of encdec-share.*--from-scratch",
        ),
        ("tden/official/vqa", "tden/pretrain", "model.vqa_fusion=official instead of paper"),
        ("unified-vlp/official/caption", "unified-vlp/pretrain", "model.region_embedding=official instead of paper"),
        ("vl-bert/official/vqa", "vl-bert/pretrain", "model.geometry=official instead of paper"),
    ],
)
def test_another_structure_is_refused(recipe: str, start: str, wanted: str) -> None:
    with pytest.raises(RecipeError, match=wanted):
        fit_named(find_recipe(recipe), built(start))


def test_what_the_recipe_loses_is_listed() -> None:
    fitted, told = fit_named(find_recipe("tden/vqa"), built("tden/official/pretrain"))
    assert told.startswith("there keeps its architecture: ")
    assert "vqa_fusion official (recipe: paper)" in told
    assert "max_regions" not in told
    assert fitted.model.max_regions == 100
    assert fit_named(find_recipe("tden/vqa"), built("tden/pretrain"))[1] == ""


def test_regions_are_the_recipe_s_where_no_weight_depends_on_them() -> None:
    def regions(recipe: str, start: str) -> int:
        return fit_named(find_recipe(recipe), built(start))[0].model.max_regions

    assert regions("tden/official/vqa", "tden/official/pretrain") == 100
    assert regions("image-bert/retrieval/36-regions", "image-bert/pretrain") == 36
    assert regions("unified-vlp/caption", "unified-vlp/small/pretrain") == 32
    assert "max_regions 32 (recipe: 100)" in fit_named(find_recipe("xgpt/caption"), built("xgpt/small/pretrain"))[1]
    assert fit_to(find_recipe("image-bert/retrieval"), built("image-bert/small/pretrain")).model.max_regions == 32


def test_places_that_text_and_regions_share_are_of_the_run() -> None:
    """VL-BERT's code has 64 in pre-training alone; VCR's texts would have no room in them."""
    for task in ("vqa", "vcr"):
        fitted, lost = fit_named(find_recipe(f"vl-bert/official/{task}"), built("vl-bert/official/pretrain"))
        assert fitted.model.region_budget == "paper"  # type: ignore[attr-defined]
        assert "region_budget" not in lost
    assert fitted.model.network is None, "and it stays on stored features"  # type: ignore[attr-defined]


def test_no_recipe_of_the_papers_size_begins_from_nothing_without_a_word() -> None:
    """But those that the paper trains from nothing, and those that go on with another's model."""
    of_papers = [name for name in RECIPES if not {"small", "photos"} & set(name.split("/"))]
    silent = {name for name in of_papers if "init" not in find_recipe(name).wanted}
    scratch = {name for name in RECIPES if name.startswith("xgpt/caption/table-3-")}
    assert silent == {"xgpt/text", *scratch, *(name for name in RECIPES if name.endswith("/scst"))} - {
        name for name in RECIPES if "/small/" in name
    }
    assert not any(find_recipe(name).init for name in RECIPES if "/small/" in name)
    staged = find_stages("image-bert/pretrain/lait-then-cc+sbu").recipes
    assert [recipe.init for recipe in staged] == ["paper: BERT base", None]


def test_what_a_paper_begins_from_is_asked_for_with_the_way_to_get_it(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with pytest.raises(RecipeError, match=r"BERT base \(bert-base-uncased.*--set init=FILE.*--set init=none"):
        learner_of(tmp_path / "run", find_recipe("vl-bert/vqa"), store)
    with pytest.raises(RecipeError, match=r"UniLM \(LuoweiZhou/VLP's"):
        learner_of(tmp_path / "run", find_recipe("unified-vlp/pretrain"), store)
    with pytest.raises(RecipeError, match=r"diptych pretrain xgpt/text --out TEXT, then --model TEXT"):
        learner_of(tmp_path / "run", find_recipe("xgpt/pretrain"), store)
    eyes = r"ResNet-101 of a Visual Genome detector .*--set network_init=FILE; .*--set network_init=none"
    for name in (name for name, preset in RECIPES.items() if preset().model.begins_from_detector and "vl-bert" in name):
        small = "/small/" in name
        assert ("network_init" in find_recipe(name).wanted) is not small, name
        if not small:
            with pytest.raises(RecipeError, match=eyes):
                find_recipe(name, ["init=none"]).check_begun()
    find_recipe("vl-bert/vqa", ["init=none", "model.network=null"]).check_begun()
    anew = find_recipe("vl-bert/vqa", ["init=none", "network_init=none"])
    learner = learner_of(tmp_path / "run", anew, store)
    assert learner.records
    assert learner.check() is learner.architecture
    assert type(Start.of(None).by(anew)) is Nothing, "random weights"
    fitted = fit_to(find_recipe("vl-bert/vqa"), built("vl-bert/pretrain"))
    assert (fitted.init, fitted.network_init) == (None, None)


def begun_by_fc7(folder: Path, recipe: Recipe, layer: nn.Linear, name: str, shape: dict[str, str] | None) -> str:
    """Begin a model with a store whose detector has the layer. Return "fc7", or what is told."""
    inner = nn.Sequential()
    inner.add_module(name, nn.ModuleDict({"fc7": layer}))
    found = FeatureContract("theirs", fingerprint(inner), layer.in_features, ("dog", "bird", "cat", "cow"))
    with StoreWriter(folder / "store", found) as writer:
        for number in range(4):
            split = "val" if number == 3 else "train"
            writer.add(Record(f"r{number}", split, captions=("a dog",), regions=toy_regions(2, number)))
    described = {"kind": "official"} if shape is None else {"kind": "faster-rcnn", "shape": shape}
    write_detector(folder / "store" / "detector", described, inner)
    learner = learner_of(folder / "run", recipe, Store(folder / "store"))
    model = learner.build()
    first = cast(Any, model).regions.feature[0]
    random = first.weight.clone()
    told = " ".join(Start.of(None).by(recipe).load(model, learner, begun=False))
    if torch.equal(first.weight, layer.weight) and torch.equal(first.bias, layer.bias):
        return "fc7"
    assert torch.equal(first.weight, random)
    return told


def test_fc7_begins_as_the_detector_s_layer_where_it_has_one(tmp_path: Path) -> None:
    """Unified VLP, appendix: "fine-tune the fc7 layer"."""
    named = {name for name, preset in RECIPES.items() if preset().model.begins_from_detector and "unified" in name}
    assert {name for name in RECIPES if find_recipe(name).wanted.get("network_init") == OF_STORE} == named
    assert len(named) == 18
    sizes = ["model.width=16", "model.heads=2", "model.ffn=32", "model.layers=1", "init=none"]
    for number, (name, layer, inner, shape, wanted) in enumerate(
        (
            ("unified-vlp/pretrain", nn.Linear(6, 6), "head", None, "^fc7$"),
            ("unified-vlp/official/caption", nn.Linear(6, 6), "box_head", {"layer": "fc6"}, "^fc7$"),
            ("unified-vlp/pretrain", nn.Linear(6, 6), "box_head", {"layer": "fc7"}, "random weights: .* no layer fc7"),
            ("unified-vlp/pretrain", nn.Linear(6, 5), "head", None, "has no layer fc7 that reads features of 6 values"),
        )
    ):
        recipe = find_recipe(name, sizes)
        assert re.search(wanted, begun_by_fc7(tmp_path / str(number), recipe, layer, inner, shape))
    off = find_recipe("unified-vlp/pretrain", [*sizes, "network_init=none"])
    assert begun_by_fc7(tmp_path / "off", off, nn.Linear(6, 6), "head", None) == ""
    assert not find_recipe("unified-vlp/pretrain", ["model.fc7=false"]).wanted.get("network_init")


def test_the_picture_s_own_feature_is_not_left_out_in_silence(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert not store.contract.whole
    wanted = ["init=none", "data.split=train", "training.validate_every=null"]
    with pytest.raises(RecipeError, match=r"the store lacks.*diptych extract DATA --out OUT .*-feature densenet121"):
        learner_of(tmp_path / "run", find_recipe("image-bert/pretrain/global", wanted), store)
    made = learner_of(tmp_path / "run", find_recipe("image-bert/small/pretrain", wanted), store)
    assert made.architecture.config.whole_region is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "lowercase", "wanted"),
    [(("The", "dog"), True, "is cased .it has 'The'.*lowercase=false"), ((), False, "is uncased.*lowercase=true")],
)
def test_a_vocabulary_of_the_other_case_is_refused(
    words: tuple[str, ...], lowercase: bool, wanted: str, tmp_path: Path
) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *(f"word{n}" for n in range(1000)), *words]))
    with pytest.raises(CheckpointError, match=wanted):
        Tokens.from_vocabulary(path, lowercase)
    assert Tokens.from_vocabulary(path, not lowercase).vocabulary.size == 1005 + len(words)


@pytest.mark.parametrize(("settings", "wanted"), [([], "vocab.txt"), (["data.vocabulary=mine.txt"], "mine.txt")])
def test_finetune_reads_the_vocabulary_beside_the_weights(
    settings: list[str], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `pretrain --init` does; what is said comes first."""
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    asked = Record("a", questions=(Question("q", "what is it", ("a dog",)),))
    monkeypatch.setattr("diptych.api.job.opened_data", lambda *_: (tmp_path, [asked]))
    options = Options(out=tmp_path / "run", settings=(f"init={tmp_path}", "network_init=none", *settings))
    job = finetuning("vqa", tmp_path, None, "vl-bert/vqa", options)
    assert Path(job.folders[0].recipe.data.vocabulary or "").name == wanted
