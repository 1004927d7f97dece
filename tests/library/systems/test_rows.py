"""Rows of one table are compared, so they get equal work."""

import re

import pytest

from diptych.core import Vocabulary
from diptych.systems import RECIPES, STAGED, find_recipe, find_stages
from diptych.systems.ledger import ledger_rows, paper_of

VOCABULARY = Vocabulary(30, 0, 1, 2, 3, 4)
STRUCTURES = ("single-stream", "two-stream", "decoupled")
FAMILIES: dict[str, list[str]] = {
    "XGPT, Table 2, out of domain": [f"xgpt/{{}}pretrain/table-2-row-{row}" for row in range(1, 6)],
    "XGPT, Table 2, in domain": [f"xgpt/{{}}in-domain/table-2-row-{row}" for row in range(6, 10)],
    "XGPT, Table 4": ["xgpt/{}pretrain/table-4-single", "xgpt/{}pretrain/table-4-multi", "xgpt/{}pretrain"],
    "TDEN, Table 1": [f"tden/{{}}pretrain/{structure}" for structure in STRUCTURES],
    "TDEN, Table 2": [f"tden/{{}}pretrain/table-2-row-{row}" for row in range(1, 9)],
}


def iterations(name: str) -> tuple[float, int]:
    """In which each task has its turn once, and the pairs of each."""
    recipe = find_recipe(name)
    schedule = recipe.objectives.schedule(VOCABULARY)
    turns = len(schedule.updates) if schedule.order == "in turn" else 1
    return recipe.training.steps / turns, recipe.training.batch


@pytest.mark.parametrize("size", ["", "small/"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_that_are_compared_get_equal_work(family: str, size: str) -> None:
    rows = [name.format(size) for name in FAMILIES[family]]
    assert len({iterations(name) for name in rows}) == 1, {name: iterations(name) for name in rows}


@pytest.mark.parametrize(
    ("prefix", "count"),
    [
        ("xgpt/caption/table-3-", 4),
        ("xgpt/small/caption/table-3-", 3),
        ("unified-vlp/pretrain", 8),
        ("image-bert/retrieval", 5),
    ],
)
def test_so_do_variants_of_one_recipe(prefix: str, count: int) -> None:
    names = [name for name in RECIPES if name.startswith(prefix) and not name.endswith("/coco")]
    assert len(names) == count
    assert len({iterations(name) for name in names}) == 1


@pytest.mark.parametrize("staged", STAGED)
def test_stages_see_as_much_as_the_union_of_their_data(staged: str) -> None:
    stages = find_stages(staged)
    united = find_recipe("/".join([*staged.split("/")[:-1], "+".join(recipe.data.split for recipe in stages.recipes)]))
    assert abs(united.training.steps - sum(recipe.training.steps for recipe in stages.recipes)) <= 1
    assert {recipe.training.batch for recipe in (united, *stages.recipes)} == {united.training.batch}


@pytest.mark.parametrize("system", ["tden", "unified-vlp", "vl-bert", "xgpt"])
def test_the_small_recipe_itself_is_as_long_as_ever(system: str) -> None:
    assert find_recipe(f"{system}/small/pretrain").training.steps == 1200


def test_image_bert_s_small_pretraining_goes_on_until_it_can_match() -> None:
    """Its matching loss begins to fall after 1,400 steps (experiments/LOG.md)."""
    training = find_recipe("image-bert/small/pretrain").training
    assert (training.steps, training.batch) == (2400, 64)


def test_steps_are_the_epochs_of_the_paper_s_pairs() -> None:
    """Millions of pairs, as docs/fidelity.md states them."""
    pairs = {
        "unified-vlp/pretrain": (30, 2.99), "vl-bert/pretrain": (10, 3.30), "tden/pretrain": (10, 3.28),
        "image-bert/pretrain/cc": (17, 3.0), "image-bert/pretrain/cc+sbu": (17, 4.0),
    }  # fmt: skip
    for name, (epochs, millions) in pairs.items():
        steps, batch = iterations(name)
        assert steps * batch / epochs == pytest.approx(millions * 1e6, rel=0.005), name
    steps, batch = iterations("xgpt/pretrain")
    assert steps * batch / 10 == pytest.approx(3.07e6, rel=0.005)


def test_unified_vlp_warms_up_for_a_tenth_of_each_run() -> None:
    """vlp.optimizer: the paper refers to BERT, the code has these defaults."""
    names = [name for name in RECIPES if name.startswith("unified-vlp/") and not re.search("/(small|photos)/", name)]
    assert len(names) >= 10
    for name in names:
        chosen = find_recipe(name).optimizer
        told = (chosen.kind, chosen.warmup_share, chosen.warmup_steps, chosen.schedule, chosen.weight_decay)
        assert told == ("bert_adam", 0.1, None, "linear", 0.01), name


def test_epochs_of_questions() -> None:
    """20 of train and val in Unified VLP's Tables 2 and 4 and in its code, of train in its Table 7 and in the other
    papers; 5 of train and val in VL-BERT's code. VCR's question is two samples.
    """
    shares = {
        "unified-vlp/vqa": (20, 658_100),
        "unified-vlp/vqa/train": (20, 443_800),
        "unified-vlp/official/vqa": (20, 658_100),
        "vl-bert/vqa": (20, 443_800),
        "vl-bert/official/vqa": (5, 658_100),
        "tden/vqa": (20, 443_800),
        "tden/vcr": (20, 2 * 212_900),
        "vl-bert/vcr": (20, 2 * 212_900),
    }
    for name, (epochs, samples) in shares.items():
        recipe = find_recipe(name)
        assert recipe.training.steps * recipe.training.batch / samples == pytest.approx(epochs, rel=0.02), name
        assert (recipe.data.split == "train+val") == (samples == 658_100), name
        assert (recipe.training.validate_every is None) == (samples == 658_100), "nothing is held out"


def test_epochs_of_captions() -> None:
    """COCO's 566,747 of Karpathy's train split, Flickr30k's 145,000; XGPT's tasks take turns."""
    shares = {
        "unified-vlp/caption": (30, 566_747),
        "unified-vlp/caption/without-pretraining": (30, 566_747),
        "unified-vlp/caption/flickr30k": (30, 145_000),
        "xgpt/in-domain": (10, 566_747),
        "xgpt/in-domain/flickr30k": (10, 145_000),
        "xgpt/caption": (30, 566_747),
        "xgpt/caption/flickr30k": (30, 145_000),
        "image-bert/retrieval": (130, 145_000),
        "image-bert/retrieval/coco": (130, 566_747),
    }
    for name, (epochs, samples) in shares.items():
        rounds, batch = iterations(name)
        assert rounds * batch / samples == pytest.approx(epochs, rel=0.02), name


@pytest.mark.parametrize("system", ["unified-vlp", "vl-bert", "tden"])
def test_three_papers_choose_among_3129_answers(system: str) -> None:
    for name in (f"{system}/vqa", f"{system}/official/vqa"):
        assert find_recipe(name).data.answers_most == 3129
    assert find_recipe(f"{system}/small/vqa").data.answers_most is None


def test_from_scratch_has_the_vocabulary_of_bert() -> None:
    """Unified VLP, section "Data": "all the words are tokenized and numericalized as in BERT"."""
    rows = [one.row for one in ledger_rows((paper_of("unified-vlp"),)) if one.row.name == "From scratch"]
    begun = [line for row in rows for line in row.commands if re.search(r"--init none|init=none", line)]
    assert (len(rows), len(begun)) == (3, 7)
    assert all(re.search(r"--vocab VOCAB|data\.vocabulary=VOCAB", line) for line in begun)
