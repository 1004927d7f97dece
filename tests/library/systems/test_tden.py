"""TDEN's recipes: the paper's numbers, the code's, the rows of its tables."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from diptych.core import collate
from diptych.objectives import OneForward, ScheduledSampling
from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES, find_recipe
from diptych.systems.tden.objectives import TdenObjectives
from diptych.training.optimizer import learning_rate
from tests.support import toy
from tests.support.learning import learner_of, notes_of
from tests.support.scenes import scene_store

V = toy.VOCABULARY


def test_the_papers_numbers() -> None:
    """tden.learning, paper: "Experimental Settings"."""
    rates = {"pretrain": 1e-4, "caption": 3e-5, "vqa": 5e-5, "retrieval": 2e-5, "vcr": 2e-5}
    batches = {"pretrain": 1024, "caption": 16, "vqa": 96, "retrieval": 512, "vcr": 64}
    for task, rate in rates.items():
        recipe = RECIPES[f"tden/{task}"]()
        assert recipe.optimizer.lr == rate
        assert recipe.training.batch == batches[task]
        assert recipe.optimizer.kind == "adam"
    objectives = RECIPES["tden/pretrain"]().objectives
    assert (objectives.two_pass, objectives.sampling, objectives.matching) == ("A", "paper", "paper")
    assert (objectives.masking, objectives.region_hidden) == ("paper", 1.0)
    sizes: Any = RECIPES["tden/pretrain"]().model
    assert (sizes.object_layers, sizes.sentence_layers, sizes.cross_layers, sizes.decoder_layers) == (6, 12, 6, 6)


def test_warm_up_and_decay_are_the_codes_or_none() -> None:
    """The paper names none; the re-release's count epochs, and the paper has as many or fewer of them."""

    def rates(name: str, *settings: str) -> list[float]:
        recipe = find_recipe(name, settings)
        steps = recipe.training.steps
        return [learning_rate(recipe.optimizer, steps * tenth // 20, steps, 1) for tenth in range(1, 20)]

    for task in ("pretrain", "caption", "vqa", "retrieval"):
        assert rates(f"tden/{task}") == pytest.approx(rates(f"tden/official/{task}"), rel=0.01), task
    assert max(rates("tden/vqa")[12:]) == pytest.approx(5e-5 / 25)
    assert [round(rates("tden/retrieval")[part], 9) for part in (4, 6, 12)] == [2e-5, 2e-6, 2e-7]
    assert [round(rates("tden/vcr")[part], 9) for part in (2, 4, 8)] == [2e-5, 2e-6, 2e-7]
    assert set(rates("tden/pretrain", "optimizer.schedule=constant", "optimizer.warmup_share=null")) == {1e-4}


def test_the_codes_numbers() -> None:
    """tden.learning, official."""
    pretrain, caption = RECIPES["tden/official/pretrain"](), RECIPES["tden/official/caption"]()
    assert (pretrain.optimizer.kind, pretrain.training.batch, pretrain.optimizer.weight_decay) == ("adamw", 256, 0.01)
    objectives = pretrain.objectives
    assert (objectives.two_pass, objectives.sampling, objectives.matching) == ("A", "official", "official")
    assert (objectives.msg_input, objectives.region_suppression) == ("official", "official")
    assert (objectives.masking, objectives.region_hidden) == ("official", 0.9)
    assert (pretrain.model.decoder_memory, pretrain.model.vqa_fusion) == ("official", "official")
    assert (pretrain.model.max_regions, RECIPES["tden/official/vqa"]().model.max_regions) == (50, 100)
    assert caption.objectives.label_smoothing == 0.1
    assert (caption.optimizer.clip_value, caption.optimizer.betas) == (0.1, (0.9, 0.999))
    assert (caption.training.batch, caption.training.steps * 80 / 566_747) == (80, pytest.approx(10, rel=0.01))
    rewarded = RECIPES["tden/official/scst"]()
    assert (rewarded.training.batch, rewarded.training.steps * 96 / 113_287) == (96, pytest.approx(50, rel=0.01))
    assert rewarded.optimizer.decay_every == pytest.approx(18 * 113_287 / 96, rel=0.01)
    assert RECIPES["tden/official/retrieval"]().optimizer.clip == 2.0
    assert RECIPES["tden/official/retrieval"]().optimizer.betas == (0.9, 0.999)
    every = {task: RECIPES[f"tden/official/{task}"]() for task in ("pretrain", "caption", "vqa", "retrieval")}
    words = {"pretrain": 34, "caption": 20, "vqa": 21, "retrieval": 28}  # [CLS] and [SEP] come on top
    assert {task: recipe.data.max_words for task, recipe in every.items()} == words
    assert {recipe.decoding.ended for recipe in every.values()} == {"kept"}
    assert every["retrieval"].training.micro_batch is None, "each text meets the pictures of all its batch"


def test_a_run_says_where_pairs_are_compared_in_parts(tmp_path: Path) -> None:
    store = scene_store(tmp_path / "store", {"train": 4})

    def notes(*settings: str) -> list[str]:
        whole = ("training.validate_every=null", "training.batch=4", "data.max_words=60")  # no caption is cut
        recipe = find_recipe("tden/small/pretrain", [*whole, *settings])
        return notes_of(tmp_path / "run", recipe, store)

    (note,) = notes("training.micro_batch=2")
    assert "only with the images of its micro-batch: 2 per process, of 4 in a step; training.micro_batch=null" in note
    assert not notes()
    assert not notes("training.micro_batch=2", "objectives.matching=null")


def test_what_is_drawn_step_by_step_follows_the_seed_of_the_run(tmp_path: Path) -> None:
    """Two-Pass-C's path, before a step."""
    store = scene_store(tmp_path / "store", {"train": 4})

    def paths(seed: int) -> list[str]:
        recipe = find_recipe("tden/small/pretrain/table-2-row-8", [f"training.seed={seed}", "training.batch=4"])
        schedule = learner_of(tmp_path / f"run-{seed}", recipe, store).schedule
        return [schedule.at(step).first for step in range(40)]

    assert paths(0) == paths(0) != paths(1)


def objectives_of(name: str) -> list[str]:
    return [objective.name for objective in RECIPES[name]().objectives.schedule(toy.VOCABULARY).objectives]


@pytest.mark.parametrize(("recipe", "kept"), [("tden/pretrain", False), ("tden/small/pretrain", True)])
def test_the_paper_masks_all_that_it_chooses(recipe: str, kept: bool) -> None:
    """MLM: "by replacing each masked word token with a mask token", and MOC likewise. Small ones do as BERT."""
    update = find_recipe(recipe, ["objectives.rate=0.5", "objectives.region_rate=0.5"]).objectives.schedule(V).at(0)
    made = collate(update.prepare([toy.sample(number) for number in range(60)], Random(0)))
    assert bool(((made.text_labels >= 0) & (made.text != V.mask)).any()) == kept
    assert bool((made.chosen & ~made.hidden).any()) == kept


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
    shapes = {RECIPES[f"{size}/pretrain/table-2-row-{row}"]().model for row in range(1, 9)}
    assert shapes == {RECIPES[f"{size}/pretrain"]().model}, "every row can be taught every task of the table"


def test_the_rows_of_table_1() -> None:
    for structure in ("single-stream", "two-stream", "decoupled"):
        assert RECIPES[f"tden/pretrain/{structure}"]().model.structure == structure


def test_what_does_not_go_together_is_refused() -> None:
    for setting, wanted in (
        ("objectives.words=false", "two_pass=A needs words=true and writing=true"),
        ("objectives.matching_on=cross", "two_pass=A cannot be used with matching_on=cross"),
        ("model.structure=two-stream", "structure=two-stream cannot use decoder_layers; set decoder_layers=0"),
    ):
        with pytest.raises(RecipeError, match=wanted):
            find_recipe("tden/small/pretrain", [setting])
    with pytest.raises(ValueError, match="all off; turn one on"):
        TdenObjectives(words=False, regions=False, writing=False, matching=None, two_pass=None)
    with pytest.raises(RecipeError, match="the authors' code has only Two-Pass-A"):
        find_recipe("tden/small/pretrain", ["objectives.two_pass=B", "objectives.sampling=official"])
