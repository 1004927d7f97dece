"""TDEN's recipes: the paper's numbers, the code's, the rows of its tables."""

import pytest

from diptych.errors import RecipeError
from diptych.objectives import OneForward, ScheduledSampling
from diptych.recipes import RECIPES, find_recipe
from diptych.recipes.objectives import TdenObjectives
from tests import toy


def test_the_papers_numbers() -> None:
    """tden.learning, paper: "Experimental Settings"."""
    rates = {"pretrain": 1e-4, "caption": 3e-5, "vqa": 5e-5, "retrieval": 2e-5}
    batches = {"pretrain": 1024, "caption": 16, "vqa": 96, "retrieval": 512}
    for task, rate in rates.items():
        recipe = RECIPES[f"tden/{task}"]()
        assert recipe.optimizer.lr == rate
        assert recipe.training.batch == batches[task]
        assert recipe.optimizer.kind == "adam"
    objectives = RECIPES["tden/pretrain"]().objectives
    assert (objectives.two_pass, objectives.sampling, objectives.matching) == ("A", "paper", "paper")


def test_the_codes_numbers() -> None:
    """tden.learning, official."""
    pretrain, caption = RECIPES["tden/official/pretrain"](), RECIPES["tden/official/caption"]()
    assert (pretrain.optimizer.kind, pretrain.training.batch, pretrain.optimizer.weight_decay) == ("adamw", 256, 0.01)
    objectives = pretrain.objectives
    assert (objectives.two_pass, objectives.sampling, objectives.matching) == ("A", "official", "official")
    assert (objectives.msg_input, objectives.region_suppression) == ("official", "official")
    assert (pretrain.model.decoder_memory, pretrain.model.vqa_fusion) == ("official", "official")
    assert (pretrain.model.max_regions, RECIPES["tden/official/vqa"]().model.max_regions) == (50, 100)
    assert caption.objectives.label_smoothing == 0.1
    assert (caption.optimizer.clip_value, caption.optimizer.betas) == (0.1, (0.9, 0.98))
    assert RECIPES["tden/official/retrieval"]().optimizer.clip == 2.0


def objectives_of(name: str) -> list[str]:
    return [objective.name for objective in RECIPES[name]().objectives.schedule(toy.VOCABULARY).objectives]


WORDS, REGIONS, WRITE, MATCH = "masked_language", "masked_region_class", "generate_text", "similarity"


@pytest.mark.parametrize("size", ["tden", "tden/small"])
def test_the_rows_of_table_2(size: str) -> None:
    wanted = {
        1: [WORDS, REGIONS, MATCH],
        2: [WRITE, MATCH],
        3: [WORDS, REGIONS, WRITE],
        4: ["matching", WORDS, REGIONS, WRITE],
        5: [WORDS, REGIONS, WRITE, MATCH],
        6: [WORDS, REGIONS, WRITE, MATCH],
        8: [WORDS, REGIONS, WRITE, MATCH] * 2,
    }
    for row, names in wanted.items():
        assert objectives_of(f"{size}/pretrain/table-2-row-{row}") == names
    kinds = {row: RECIPES[f"{size}/pretrain/table-2-row-{row}"]().objectives for row in range(1, 9)}
    schemes = {row: [u for u, _ in kind.schedule(toy.VOCABULARY).updates] for row, kind in kinds.items()}
    assert all(isinstance(schemes[row][0], OneForward) for row in (1, 2, 3, 4, 5))
    assert [schemes[row][0].scheme for row in (6, 7, 8)] == ["A", "B", "C"]
    assert isinstance(schemes[8][1], ScheduledSampling)
    assert RECIPES[f"{size}/pretrain/table-2-row-1"]().model.decoder_layers == 0
    assert RECIPES[f"{size}/pretrain/table-2-row-2"]().model.cross_layers == 0


def test_the_rows_of_table_1() -> None:
    for structure in ("single-stream", "two-stream", "decoupled"):
        assert RECIPES[f"tden/pretrain/{structure}"]().model.structure == structure


def test_what_does_not_go_together_is_refused() -> None:
    for setting, wanted in (
        ("objectives.words=false", "two_pass=A puts guesses of words .* needs words=true and writing=true"),
        ("objectives.matching_on=cross", "two_pass=A with matching_on=cross"),
        ("model.structure=two-stream", "structure=two-stream has no decoder_layers; set 0"),
    ):
        with pytest.raises(RecipeError, match=wanted):
            find_recipe("tden/small/pretrain", [setting])
    with pytest.raises(ValueError, match="all off, so there is nothing to train"):
        TdenObjectives(words=False, regions=False, writing=False, matching=None, two_pass=None)
    recipe = find_recipe("tden/small/pretrain", ["objectives.two_pass=B", "objectives.sampling=official"])
    with pytest.raises(RecipeError, match="the released code has Two-Pass-A alone"):
        recipe.objectives.schedule(toy.VOCABULARY)
