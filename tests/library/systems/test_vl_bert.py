"""VL-BERT's recipes: the paper's numbers, and the code's where they differ."""

from pathlib import Path

import pytest

from diptych.runtime.errors import RecipeError
from diptych.systems import Recipe, find_recipe
from diptych.systems.vl_bert.model import VLBertConfig
from diptych.tasks.referring import ReferringObjectives
from diptych.tasks.vcr import VcrObjectives
from diptych.training.optimizer import highest_rate, learning_rate
from tests.support.learning import learner_of
from tests.support.scenes import scene_store


def shape_of(recipe: Recipe) -> VLBertConfig:
    assert isinstance(recipe.model, VLBertConfig)
    return recipe.model


def test_the_papers_vcr() -> None:
    """Section 4.2.1: 256 triplets, SGD at 2e-3, momentum 0.9, warm-up 1,000, a tenth at epochs 14 and 18 of 20."""
    recipe = find_recipe("vl-bert/vcr")
    optimizer, steps = recipe.optimizer, recipe.training.steps
    assert (optimizer.kind, optimizer.lr, optimizer.momentum, optimizer.weight_decay) == ("sgd", 2e-3, 0.9, 1e-4)
    assert recipe.training.batch * 4 == 256
    rates = [learning_rate(optimizer, step, steps, 64) for step in (499, 999, 7 * steps // 10, 9 * steps // 10)]
    assert [round(rate, 9) for rate in rates] == [1e-3, 2e-3, 2e-4, 2e-5]
    assert recipe.objectives == VcrObjectives(vcr_loss="softmax", region_classes="masked")
    assert shape_of(recipe).network == "resnet101"
    assert recipe.data.mirror == 0


def test_the_codes_vcr() -> None:
    """cfgs/vcr/base_q2a_4x16G_fp32.yaml: 7e-5 times 4 x 4 x 4 questions, clip 10, 600 x 1200 pixels, half mirrored."""
    recipe = find_recipe("vl-bert/official/vcr")
    assert round(highest_rate(recipe.optimizer, recipe.training.batch), 9) == 4.48e-3
    assert (recipe.optimizer.kind, recipe.optimizer.clip, recipe.optimizer.warmup_steps) == ("sgd", 10.0, 1000)
    assert recipe.optimizer.decay_biases_and_norms
    assert recipe.objectives == VcrObjectives(vcr_loss="sigmoid", region_classes="every")
    assert (recipe.data.pixels_shorter, recipe.data.pixels_longer, recipe.data.pixels_colours) == (600, 1200, "bgr")
    assert (recipe.data.max_words, recipe.data.mirror) == (64, 0.5)
    shape = shape_of(recipe)
    assert (shape.geometry, shape.visual_norm_init, shape.region_budget) == ("official", "official", "paper")


def test_the_papers_referring_expressions() -> None:
    """Section 4.2.3: 256 pairs, Adam at 2e-4, warm-up 500, 20 epochs."""
    recipe = find_recipe("vl-bert/referring")
    optimizer = recipe.optimizer
    assert (optimizer.kind, optimizer.lr, optimizer.warmup_steps, optimizer.schedule) == ("adam", 2e-4, 500, "linear")
    assert recipe.training.batch == 256
    assert recipe.objectives == ReferringObjectives(overlap=0.5)


def test_the_codes_referring_expressions() -> None:
    """cfgs/refcoco/base_detected_regions_4x16G.yaml: 8e-7 times 4 x 4 x 2 pairs, clip 1, warm-up 3,750."""
    recipe = find_recipe("vl-bert/official/referring")
    assert round(highest_rate(recipe.optimizer, recipe.training.batch), 9) == 2.56e-5
    assert (recipe.optimizer.kind, recipe.optimizer.clip, recipe.optimizer.warmup_steps) == ("adamw", 1.0, 3750)
    assert recipe.data.pixels_longer == 1000


@pytest.mark.parametrize("name", ["pretrain", "vqa", "vcr", "referring", "large/pretrain", "iclr/text-too"])
def test_weight_decay_is_of_all_parameters(name: str) -> None:
    """4.1: "weight decay of 1e-4", without exception; the code has none either."""
    optimizer = find_recipe(f"vl-bert/{name}").optimizer
    assert (optimizer.weight_decay, optimizer.decay_biases_and_norms) == (1e-4, True)


def test_what_the_code_mirrors() -> None:
    shares = {task: find_recipe(f"vl-bert/official/{task}").data.mirror for task in ("pretrain", "vqa", "referring")}
    assert shares == {
        "pretrain": 0.5,
        "vqa": 0.5,
        "referring": 0.5,
    }  # FLIP_PROB
    assert find_recipe("vl-bert/official/end-to-end").data.mirror == 0.5


def test_v1_learns_from_pixels_throughout() -> None:
    """Figure 1: "jointly trained in both pre-training and fine-tuning phase". The code answers from stored features."""
    tasks = ("pretrain", "vqa", "vcr", "referring")
    assert {shape_of(find_recipe(f"vl-bert/{task}")).network for task in tasks} == {"resnet101"}
    assert all(find_recipe(f"vl-bert/{task}").optimizer.lr_multipliers for task in tasks)
    assert {find_recipe(f"vl-bert/{task}").data.pixels_colours for task in tasks} == {"bgr"}
    code = {task: shape_of(find_recipe(f"vl-bert/official/{task}")).network for task in tasks}
    assert code == {"pretrain": None, "vqa": None, "vcr": "resnet101", "referring": "resnet101"}
    assert shape_of(find_recipe("vl-bert/official/end-to-end")).network == "resnet101"


def test_forms_of_what_is_hidden_and_of_the_end() -> None:
    for task in ("pretrain", "vqa", "vcr", "referring"):
        for name, form in ((f"vl-bert/{task}", "paper"), (f"vl-bert/official/{task}", "official")):
            shape = shape_of(find_recipe(name))
            assert (shape.hidden_regions, shape.end_visual) == (form, form), name


def test_the_code_cuts_captions_at_half_of_its_places(tmp_path: Path) -> None:
    """32 of 64, [CLS] and [SEP] among them (conceptual_captions.py)."""
    store = scene_store(tmp_path / "store", {"train": 4})
    recipe = find_recipe("vl-bert/official/pretrain", ["init=none", "model.width=48", "model.layers=1"])
    assert recipe.data.max_words == 30
    learner_of(tmp_path / "run", recipe, store)
    with pytest.raises(RecipeError, match=r"has 32 positions for words, but data.max_words=32 needs 33"):
        learner_of(tmp_path / "run", recipe.override(["data.max_words=32"]), store)


def test_text_and_regions_share_places_in_pretraining_alone() -> None:
    """SEQ_LEN is conceptual_captions.py's; vqa.py and the others cut no regions."""
    budgets = {task: shape_of(find_recipe(f"vl-bert/official/{task}")).region_budget for task in ("pretrain", "vqa")}
    assert budgets == {"pretrain": "official", "vqa": "paper"}


def test_ten_epochs_of_pairs_whatever_stands_beside_them() -> None:
    """cfgs/pretrain: 4 x 64 pairs, 4 x (32 + 32) with text, END_EPOCH 10."""
    for name in ("pretrain", "official/pretrain", "official/end-to-end", "official/text-too", "iclr/text-too"):
        recipe = find_recipe(f"vl-bert/{name}")
        pairs = recipe.training.batch * (0.5 if name.endswith("text-too") else 1.0)
        assert recipe.training.batch == 256
        assert recipe.training.steps * pairs / 3.3e6 == pytest.approx(10, rel=0.01), name
    assert find_recipe("vl-bert/official/text-too").data.text_share == 0.5


def test_large_is_as_deep_for_every_task() -> None:
    assert {
        shape_of(find_recipe(f"vl-bert/large/{task}")).layers for task in ("pretrain", "vqa", "vcr", "referring")
    } == {24}
    assert shape_of(find_recipe("vl-bert/large/vcr")).network == "resnet101"
