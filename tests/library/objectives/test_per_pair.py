"""Losses as the formulas have them: summed over what is asked of a pair."""

from dataclasses import replace
from random import Random

import pytest
import torch

from diptych.core import Objective, collate
from diptych.objectives import MaskedRegionClass, SummedByPair
from diptych.systems.image_bert.objectives import ImageBertObjectives
from diptych.systems.xgpt.objectives import XgptObjectives
from tests.support import toy

V = toy.VOCABULARY


def asked(one: ImageBertObjectives | XgptObjectives) -> list[Objective]:
    return list(one.schedule(V).objectives)


def test_words_are_summed_in_a_pair_or_a_mean_over_all() -> None:
    """XGPT's Eqs. 2 to 4; of the regions Eq. 5 takes the mean."""
    made = {unit: asked(XgptObjectives(loss_per=unit)) for unit in ("item", "pair")}  # type: ignore[arg-type]
    assert [one.name for one in made["item"]] == [one.name for one in made["pair"]]
    samples, model = [toy.sample(seed, 4) for seed in range(3)], toy.xgpt("word", "region_feature")
    for by_item, by_pair in zip(made["item"], made["pair"], strict=True):
        batch = collate(by_pair.prepare(samples, Random(0)))
        again = collate(by_item.prepare(samples, Random(0)))
        torch.testing.assert_close(by_pair.loss(model, model(batch), batch), by_item.loss(model, model(again), again))
        regions = by_item.name == "generate_regions"
        assert int(by_pair.count(batch)) == (12 if regions else 3)
        assert int(by_item.count(again)) > 3
        assert (by_pair.needs, by_pair.heads, by_pair.changes) == (by_item.needs, by_item.heads, by_item.changes)


def test_the_formulas_sum_over_regions_of_right_pairs() -> None:
    """ImageBERT's Tasks 1 to 3: the expectation is over related pairs; matching is a mean over all pairs in both."""
    names = {one.name: isinstance(one, SummedByPair) for one in asked(ImageBertObjectives(loss_per="pair"))}
    assert names == {
        "matching": False, "masked_language": True, "masked_region_class": True, "masked_region_feature": True,
    }  # fmt: skip
    assert not any(isinstance(one, SummedByPair) for one in asked(ImageBertObjectives()))
    classes = MaskedRegionClass(rate=1.0, only_matched=True)
    samples = [replace(toy.sample(seed, count), matched=seed < 2) for seed, count in enumerate((3, 5, 4))]
    batch = collate(classes.prepare(samples, Random(0)))
    assert (int(classes.count(batch)), int(SummedByPair(classes).count(batch))) == (8, 2)


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_a_mean_over_pairs_does_not_depend_on_how_a_batch_is_cut(parts: int) -> None:
    """Of some parts nothing is asked; their pairs count all the same."""
    classes = SummedByPair(MaskedRegionClass(rate=0.15))
    prepared, model = classes.prepare([toy.sample(seed, 5) for seed in range(8)], Random(0)), toy.xgpt("region_class")
    batches = [collate(prepared[part::parts]) for part in range(parts)]
    assert any(not classes.objective.count(batch) for batch in batches) or parts < 8
    assert sum(int(classes.count(batch)) for batch in batches) == 8
    whole, losses = collate(prepared), [classes.loss(model, model(batch), batch) for batch in batches]
    torch.testing.assert_close(torch.stack(losses).sum(), classes.loss(model, model(whole), whole))


@pytest.mark.parametrize("unit", ["sum", "", None])
def test_other_units_are_refused(unit: object) -> None:
    with pytest.raises(ValueError, match="loss_per"):
        ImageBertObjectives.model_validate({"loss_per": unit})
