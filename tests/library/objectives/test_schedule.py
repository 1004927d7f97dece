from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import pytest
import torch

from diptych.core import Method, Objective, StateRequest, Update, collate
from diptych.objectives import (
    MaskedLanguage,
    MaskedQueries,
    MaskedRegionClass,
    OneForward,
    Schedule,
    Similarity,
    together,
)
from diptych.runtime.errors import RecipeError
from tests.support import toy

V = toy.VOCABULARY


@dataclass(frozen=True)
class Swap:
    """Stands for image-text matching."""

    name: str = "swap"
    needs: ClassVar = frozenset({"unimodal"})
    heads: ClassVar = frozenset({"match"})
    changes: ClassVar = "pairs"

    def prepare(self, samples, rng):
        return [replace(s, matched=False) for s in samples]

    def count(self, batch):
        return torch.tensor(len(batch))

    def request(self, batch):
        return StateRequest()

    def loss(self, model, states, batch):
        return states.special["cls"].sum()


def test_objectives_and_updates_have_their_roles():
    for objective in (MaskedLanguage(V), MaskedQueries(V), MaskedRegionClass(), Swap()):
        assert isinstance(objective, Objective)
    assert isinstance(OneForward((MaskedLanguage(V),)), Update)


@dataclass(frozen=True)
class HardNegatives(Objective):
    """It compares the samples of a batch, and calls a method of the model."""

    heads: ClassVar = frozenset({"match"})
    needs: ClassVar = frozenset({"text", Method("fuse")})
    compares: ClassVar = "batch"

    def loss(self, model, states, batch):
        return states.special["cls"].sum()


def test_an_objective_has_defaults():
    objective, batch = HardNegatives(), collate([toy.sample(n) for n in range(3)])
    assert (objective.name, objective.changes) == ("hard_negatives", "nothing")
    assert objective.count(batch) == 3
    assert objective.request(batch) == StateRequest(heads=frozenset({"match"}))
    samples = [toy.sample(0)]
    assert objective.prepare(samples, Random(0)) is samples


def test_methods_of_the_model_can_be_needed():
    class Fusing:
        def fuse(self): ...

    schedule = together(HardNegatives())
    schedule.check(frozenset({"text"}), "albef", Fusing)
    with pytest.raises(RecipeError, match="hard_negatives needs a method fuse, but tden provides text;"):
        schedule.check(frozenset({"text"}), "tden", Swap)
    with pytest.raises(RecipeError, match="hard_negatives needs a method fuse and text, but tden provides regions;"):
        schedule.check(frozenset({"regions"}), "tden")


def test_what_an_objective_compares_is_its_own_word():
    assert together(HardNegatives()).compares_pairs
    assert together(Similarity()).compares_pairs
    assert not together(Swap()).compares_pairs


def test_swapping_after_hiding_is_refused():
    OneForward((Swap(), MaskedLanguage(V)))
    with pytest.raises(RecipeError, match=r"swap swaps captions after masked_language .* put swap first"):
        OneForward((MaskedLanguage(V), Swap()))


def test_names_and_weights_are_checked():
    with pytest.raises(RecipeError, match="share a name: masked_language, masked_language"):
        OneForward((MaskedLanguage(V), MaskedLanguage(V, rate=0.5)))
    OneForward((MaskedLanguage(V), MaskedLanguage(V, rate=0.5, name="harder")), {"harder": 0.5})
    with pytest.raises(RecipeError, match="weights has 'masked', but the objectives are masked_language; remove"):
        OneForward((MaskedLanguage(V),), {"masked": 2.0})


def test_one_forward_serves_all_its_objectives():
    update, model = OneForward((MaskedLanguage(V), MaskedRegionClass(rate=0.5))), toy.model("word", "region_class")
    batch = collate(update.prepare([toy.sample(n) for n in range(4)], Random(0)))
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    (losses,) = list(update.losses(model, batch))
    assert len(passes) == 1
    assert losses.keys() == update.counts(batch).keys() == {"masked_language", "masked_region_class"}
    assert all(loss.requires_grad and loss.shape == () for loss in losses.values())
    assert int(update.counts(batch)["masked_region_class"]) == int(batch.chosen.sum())


def test_what_a_step_does_depends_on_seed_and_step_alone():
    a, b = OneForward((MaskedLanguage(V),)), OneForward((MaskedQueries(V),))
    turns = Schedule(((a, 1.0), (b, 1.0)), "in turn")
    assert [turns.at(n) is a for n in range(4)] == [True, False, True, False]
    drawn = Schedule(((a, 3.0), (b, 1.0)), "sampled", seed=5)
    picks = [drawn.at(n) is a for n in range(2000)]
    assert Counter(picks)[True] / 2000 == pytest.approx(0.75, abs=0.03)
    assert [drawn.at(n) is a for n in reversed(range(2000))][::-1] == picks
    assert [replace(drawn, seed=6).at(n) is a for n in range(2000)] != picks
    assert together(MaskedLanguage(V)).at(7).objectives == (MaskedLanguage(V),)


def test_a_run_is_judged_by_losses_of_one_unit():
    """Of updates in turn or drawn one alone is watched, and never one that is not made."""
    a, b = OneForward((MaskedLanguage(V),)), OneForward((MaskedQueries(V),))
    assert all(Schedule(((a, 1.0), (b, 3.0)), "sampled").first.at(n) is a for n in range(20))
    assert all(Schedule(((a, 0.0), (b, 3.0)), "sampled").first.at(n) is b for n in range(20))
    assert all(Schedule(((b, 1.0), (a, 1.0)), "in turn").first.at(n) is b for n in range(20))
    whole = together(MaskedLanguage(V))
    assert whole.first is whole


def test_impossible_schedules_are_refused():
    a, b = OneForward((MaskedLanguage(V),)), OneForward((MaskedQueries(V),))
    with pytest.raises(RecipeError, match="no update"):
        Schedule(())
    with pytest.raises(RecipeError, match=r'put their objectives into one OneForward, or choose order "in turn"'):
        Schedule(((a, 1.0), (b, 1.0)))
    with pytest.raises(RecipeError, match="must not be negative, and at least one must be above 0"):
        Schedule(((a, 0.0), (b, 0.0)), "sampled")


def test_needs_and_heads_are_known_before_any_file_is_read():
    schedule = together(Swap(), MaskedLanguage(V))
    assert schedule.heads == {"match", "word"}
    assert schedule.needs == {"unimodal", "text", "text after regions"}
    with pytest.raises(RecipeError, match="swap needs unimodal, but unified_vlp provides decode, queries, regions"):
        schedule.check(toy.model().provides, "unified_vlp")
    together(MaskedLanguage(V)).check(toy.model().provides, "unified_vlp")
