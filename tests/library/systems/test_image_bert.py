"""ImageBERT's recipes: each row of its Tables 3 and 4 is one, and differs from its baseline in what the row names."""

from random import Random

import pytest

from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES, find_recipe, find_stages
from diptych.systems.image_bert.objectives import ImageBertObjectives
from tests.support import toy


def differences(name: str, baseline: str) -> list[str]:
    lines = find_recipe(name).differences(find_recipe(baseline))
    return [line for line in lines if not line.startswith("name: ")]


def mrfr(name: str) -> list[float]:
    found = [recipe.objectives for recipe in find_stages(name).recipes]
    return [kind.region_features for kind in found if isinstance(kind, ImageBertObjectives)]


def test_mrfr_came_later_than_the_rows_without_lait() -> None:
    """CC of Table 3 is CC without MRFR of Table 4, part 2; CC+SBU of Table 3 the baseline of part 1."""
    rows = {
        "cc": [0.0],
        "cc+sbu": [0.0],
        "global": [0.0],
        "cc+mrfr": [1.0],
        "lait": [1.0],
        "lait+cc+sbu": [1.0],
        "lait-then-cc+sbu": [1.0, 1.0],
    }
    assert {row: mrfr(f"image-bert/pretrain/{row}") for row in rows} == rows
    assert "image-bert/pretrain/without-mrfr" not in RECIPES


@pytest.mark.parametrize(
    ("row", "baseline", "wanted"),
    [
        ("pretrain/cc+mrfr", "pretrain/cc", "objectives.region_features: 1.0, was 0.0"),
        ("pretrain/global", "pretrain/cc+sbu", "model.whole_region: true, was false"),
        ("retrieval/36-regions", "retrieval", "model.max_regions: 36, was 100"),
    ],
)
def test_a_row_of_table_4_differs_from_its_baseline_in_one_thing(row: str, baseline: str, wanted: str) -> None:
    assert differences(f"image-bert/{row}", f"image-bert/{baseline}") == [wanted]


def read(name: str, right: int) -> tuple[int, int]:
    """Pairs of which a step reads, and the right ones among them, where the batch is `right`."""
    made = [toy.sample(number) for number in range(right)]
    update = find_recipe(name).objectives.schedule(toy.VOCABULARY).at(0)
    pairs = update.prepare(made, Random(0))
    return len(pairs), sum(pair.matched for pair in pairs)


def test_batches_count_right_pairs_of_all_gpus() -> None:
    """Sections 5.1 and 5.2. Wrong ones stand beside them, in pre-training one of each kind; small ones break half."""
    batches = [find_recipe(f"image-bert/{task}").training.batch for task in ("pretrain", "retrieval")]
    assert batches == [48, 24]
    assert read("image-bert/pretrain", 48) == (3 * 48, 48)
    assert read("image-bert/retrieval", 24) == (4 * 24, 24)
    total, right = read("image-bert/small/pretrain", 48)
    assert total == 48 > right
    with pytest.raises(RecipeError, match="`broken` needs wrong_pairs=instead"):
        find_recipe("image-bert/pretrain", ["objectives.broken=0.4"])


@pytest.mark.parametrize("size", ["", "small/"])
def test_the_error_of_features_is_a_mean(size: str) -> None:
    """A sum over 2,048 numbers drowns the other losses (docs/fidelity.md)."""
    image_bert, xgpt = (find_recipe(f"{system}/{size}pretrain").objectives for system in ("image-bert", "xgpt"))
    assert (image_bert.distance, xgpt.region_error) == ("mean", "mean")  # type: ignore[attr-defined]
