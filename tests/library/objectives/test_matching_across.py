"""TDEN's ISM on the cross-modal output, which its Table 2 finds to hamper the rest."""

from random import Random

import pytest

from diptych.core import collate
from diptych.systems.tden.objectives import TdenObjectives
from tests.support import toy

V = toy.VOCABULARY


def test_ism_on_the_cross_modal_output():
    """Table 2, row 4: pairs are swapped first, and words are guessed of those alone that belong together."""
    (update, _), *_ = TdenObjectives(matching_on="cross", two_pass=None).schedule(V).updates
    names = [objective.name for objective in update.objectives]
    assert names == ["matching", "masked_language", "masked_region_class", "generate_text"]
    samples = update.prepare([toy.sample(n) for n in range(12)], Random(0))
    for sample in samples:
        if not sample.matched:
            assert (sample.text_labels == -1).all()
            assert (sample.target_labels == -1).all()
            assert not sample.regions.chosen.any()
    assert {sample.matched for sample in samples} == {True, False}
    model = toy.tden(*update_heads(update))
    (losses,) = update.losses(model, collate(samples))
    assert all(loss.isfinite() for loss in losses.values())


def update_heads(update):
    return set().union(*(objective.heads for objective in update.objectives))


def test_matching_across_is_one_pass():
    with pytest.raises(ValueError, match="two_pass=A cannot be used with matching_on=cross"):
        TdenObjectives(matching_on="cross")
