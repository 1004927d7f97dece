"""XGPT's recipes hold the paper's numbers, and each row of its tables is one."""

import pytest
import torch

from diptych.core import Vocabulary
from diptych.data.store.tokens import Tokens
from diptych.systems import RECIPES, find_recipe
from diptych.systems.xgpt.model import Xgpt, XgptConfig, XgptResolvedConfig
from diptych.systems.xgpt.objectives import XgptObjectives
from diptych.tasks.caption import Captioning, greedily
from diptych.training.optimizer import learning_rate

V = Vocabulary(30, 0, 1, 2, 3, 4)


def tasks(name: str) -> dict[str, float]:
    objectives = find_recipe(name).objectives
    assert isinstance(objectives, XgptObjectives)
    return {name: weight for name, weight in objectives.weights().items() if weight}


@pytest.mark.parametrize("size", ["", "small/"])
def test_every_row_of_table_2_is_a_recipe(size: str) -> None:
    rows = {
        1: {"captions": 1.0},
        2: {"captions": 1.0, "fragments": 1.0},
        3: {"captions": 1.0, "denoising": 1.0},
        4: {"captions": 1.0, "regions": 1.0},
        5: {"captions": 1.0, "fragments": 1.0, "denoising": 1.0, "regions": 1.0},
        6: {"captions": 1.0, "fragments": 0.3},
        7: {"captions": 1.0, "denoising": 0.3},
        8: {"captions": 1.0, "regions": 0.3},
        9: {"captions": 1.0, "fragments": 0.3, "denoising": 0.3, "regions": 0.3},
    }
    for row, wanted in rows.items():
        stage = "pretrain" if row <= 5 else "in-domain"
        assert tasks(f"xgpt/{size}{stage}/table-2-row-{row}") == wanted


def test_every_row_of_table_3_is_a_recipe() -> None:
    for depth, layers, structure in (
        ("tiny", 6, "enc"),
        ("tiny", 3, "encdec"),  # 3 that read and 3 that write
        ("tiny", 6, "encdec-share"),
        ("base", 12, "encdec-share"),
    ):
        recipe = find_recipe(f"xgpt/caption/table-3-{depth}-{structure}")
        assert isinstance(recipe.model, XgptConfig)
        assert (recipe.model.layers, recipe.model.structure, recipe.model.width) == (layers, structure, 768)
    assert {name for name in RECIPES if name.startswith("xgpt/small/caption/table-3-")} == {
        f"xgpt/small/caption/table-3-{structure}" for structure in ("enc", "encdec", "encdec-share")
    }


def test_the_tiny_models_of_table_3_are_of_a_size() -> None:
    """Section 6 compares them at "a similar number of parameters"; 6 and 6 layers would be 129 M beside 72 M."""

    def millions(structure: str, **changes: int) -> float:
        shape = find_recipe(f"xgpt/caption/table-3-tiny-{structure}").model.model_dump() | changes
        vocabulary = Vocabulary(30_000, 0, 1, 2, 3, 4)
        with torch.device("meta"):
            model = Xgpt(XgptResolvedConfig(**shape, vocabulary=vocabulary, feature_size=2048))
        return sum(weight.numel() for weight in model.parameters()) / 1e6

    sizes = [millions(structure) for structure in ("enc", "encdec", "encdec-share")]
    assert max(sizes) / min(sizes) < 1.15
    assert millions("encdec", layers=6) / min(sizes) > 1.7


def test_both_rows_of_table_4_are_recipes() -> None:
    single, multi = (find_recipe(f"xgpt/pretrain/table-4-{masks}") for masks in ("single", "multi"))
    assert tasks(single.name) == tasks(multi.name) == {"captions": 1.0, "denoising": 1.0}
    assert [line for line in multi.differences(single) if not line.startswith("name")] == [
        'objectives.masks: "multi", was "single"'
    ]


def test_the_paper_s_numbers() -> None:
    """Section 5.3: Adam, 0.9 and 0.98, 1e-4 falling to 2e-5 by the inverse square root; batch 512; the 4 best."""
    recipe = find_recipe("xgpt/pretrain")
    optimizer, training = recipe.optimizer, recipe.training
    assert (optimizer.kind, optimizer.betas, optimizer.schedule) == ("adam", (0.9, 0.98), "inverse_sqrt")
    assert (training.batch, training.average_best) == (512, 4)
    rates = [learning_rate(optimizer, step, training.steps, 512) for step in range(0, training.steps, 100)]
    assert max(rates) == pytest.approx(1e-4, rel=0.01)
    assert learning_rate(optimizer, training.steps - 1, training.steps, 512) == pytest.approx(2e-5)
    assert find_recipe("xgpt/in-domain").optimizer.lr == find_recipe("xgpt/caption").optimizer.lr == 1e-5
    assert recipe.decoding.beams == 2
    averaged = {task: find_recipe(f"xgpt/{task}").training.average_best for task in ("text", "in-domain", "caption")}
    assert averaged == {"text": 4, "in-domain": 4, "caption": 0}, "pre-trained weights are averaged (5.3)"
    assert recipe.decoding.max_words == recipe.data.max_words + 1, "captions end with [SEP]"
    assert recipe.data.tokens == "bpe"


def test_an_iteration_is_a_step_of_each_task() -> None:
    one, all_four = find_recipe("xgpt/pretrain/table-2-row-1"), find_recipe("xgpt/pretrain/table-2-row-5")
    assert all_four.training.steps == 4 * one.training.steps
    schedule = all_four.objectives.schedule(V)
    assert len({schedule.at(step).objectives[0].name for step in range(4)}) == 4
    assert [objective.name for objective in schedule.first.objectives] == ["generate_text"]


def test_weights_are_chosen_by_greedy_captions_and_scored_by_beam_2() -> None:
    tokens = Tokens.train(["a kite", "two dogs"], 60)
    task = find_recipe("xgpt/caption").task_with(tokens, None)
    chosen, _ = greedily(task, [])
    assert isinstance(task, Captioning)
    assert isinstance(chosen, Captioning)
    assert (task.decoding.beams, chosen.decoding.beams) == (2, 1)
    assert chosen.tokens is tokens


def test_text_alone_is_mlm_and_mass() -> None:
    schedule = find_recipe("xgpt/text").objectives.schedule(V)
    assert [objective.name for objective in schedule.objectives] == ["masked_language", "text_fragment"]
