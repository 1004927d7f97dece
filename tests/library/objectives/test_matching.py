"""Pairs that are broken, and groups of pairs told apart."""

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import mean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, IGNORE, collate
from diptych.objectives import (
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    MaskedRegionFeature,
    MatchGroups,
    OneForward,
)
from diptych.objectives.retrieval import group_sizes
from diptych.runtime.errors import RecipeError
from tests.support import toy

V = toy.VOCABULARY


def samples(count: int, pictures: int | None = None):
    """Several captions a picture where there are fewer pictures than samples."""
    made = [toy.sample(n) for n in range(count)]
    if pictures is None:
        return made
    return [
        replace(s, picture=f"picture/{n % pictures}", regions=made[n % pictures].regions, text=torch.tensor([5 + n, 3]))
        for n, s in enumerate(made)
    ]


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000), count=st.integers(1, 9), pictures=st.integers(1, 4))
@pytest.mark.parametrize("negatives", ["captions", "pictures", "both"])
def test_a_broken_pair_is_never_of_one_picture(negatives, seed, count, pictures):
    before = samples(count, pictures)
    belongs = {(s.picture, tuple(s.text.tolist())) for s in before}
    for pair in ImageTextMatching(negatives=negatives).prepare(before, Random(seed)):
        assert pair.matched == ((pair.picture, tuple(pair.text.tolist())) in belongs)
        own = next(s for s in before if s.picture == pair.picture)
        assert torch.equal(pair.regions.boxes, own.regions.boxes), "regions and the name of their picture go together"
        assert pair.attention == BIDIRECTIONAL


def test_both_kinds_of_negatives_and_the_rate():
    before = samples(400)
    kinds = Counter()
    for own, pair in zip(before, ImageTextMatching().prepare(before, Random(0)), strict=True):
        kinds["right" if pair.matched else "caption" if pair.picture == own.picture else "picture"] += 1
    assert abs(kinds["right"] - 200) < 40
    assert abs(kinds["caption"] - kinds["picture"]) < 50
    assert all(pair.matched for pair in ImageTextMatching(rate=0.0).prepare(before, Random(0)))
    one = ImageTextMatching(rate=1.0, negatives="captions").prepare(before, Random(0))
    assert all(pair.picture == own.picture and not pair.matched for own, pair in zip(before, one, strict=True))


@pytest.mark.parametrize(("negatives", "kinds"), [("both", [0, 1]), ("captions", [0]), ("pictures", [1])])
def test_wrong_pairs_may_stand_beside_the_right_ones(negatives, kinds):
    """Section 4.3: negative sentences for each image and negative images for each sentence are samples of their own."""
    before = [*samples(5), replace(toy.sample(9), regions=None)]
    after = ImageTextMatching(negatives=negatives, adds=True).prepare(before, Random(0))
    assert len(after) == 5 * (1 + len(kinds)) + 1, "text alone has none"
    right = [pair for pair in after if pair.matched]
    assert [(pair.key, pair.picture) for pair in right] == [(own.key, own.picture) for own in before]
    for own in before[:5]:
        beside = [pair for pair in after if pair.key.startswith(f"{own.key}|")]
        assert [int(pair.picture != own.picture) for pair in beside] == kinds
        assert all(torch.equal(pair.text, own.text) == (pair.picture != own.picture) for pair in beside)
    batch = collate(after)
    assert int(ImageTextMatching().count(batch)) == 5 * (1 + len(kinds))


def test_equal_words_are_no_mismatch():
    twins = [replace(toy.sample(n), text=torch.tensor([5, 3])) for n in range(3)]
    assert all(pair.matched for pair in ImageTextMatching(rate=1.0).prepare(twins, Random(0)))


def test_copies_of_an_image_are_no_mismatch():
    """Two names of one image: neither the caption nor the image of the copy makes a mismatched pair."""
    copies = [replace(sample, content=content) for sample, content in zip(samples(3), (7, 7, 8), strict=True)]
    for seed in range(20):
        for pair in ImageTextMatching(rate=1.0).prepare(copies[:2], Random(seed)):
            assert pair.matched
        read = ImageTextMatching(rate=1.0).prepare(copies, Random(seed))
        assert all("|" in pair.key and pair.key.split("|")[1] == copies[2].key for pair in read[:2])
        third = read[2]
        assert third.content == (8 if third.picture == copies[2].picture else 7)


def test_matching_by_hand():
    model, objective = toy.model("match"), ImageTextMatching(rate=0.5)
    batch = collate(objective.prepare(samples(6), Random(3)))
    assert {True, False} <= set(batch.matched.tolist())
    states = model(batch)
    head = model.heads["match"].out
    by_hand = torch.zeros(())
    for state, right in zip(states.special["cls"], batch.matched.tolist(), strict=True):
        odds = state @ head.weight[0] + head.bias[0]
        by_hand = by_hand - torch.log(torch.sigmoid(odds) if right else 1 - torch.sigmoid(odds))
    torch.testing.assert_close(objective.loss(model, states, batch), by_hand)
    assert int(objective.count(batch)) == 6


def test_swapping_comes_before_hiding():
    with pytest.raises(RecipeError, match="put matching first"):
        OneForward((MaskedLanguage(V), ImageTextMatching()))
    with pytest.raises(RecipeError, match="put match_binary first"):
        OneForward((MaskedRegionFeature(), MatchGroups()))


def test_of_a_broken_pair_nothing_is_asked_and_as_much_is_hidden():
    """If masks were in right pairs alone, they would tell which those are, and matching would be learnt from them."""
    update = OneForward(
        (
            ImageTextMatching(),
            MaskedLanguage(V, only_matched=True, rate=0.9),
            MaskedRegionClass(rate=0.9, only_matched=True),
            MaskedRegionFeature(only_matched=True),
        )
    )
    shares: dict[bool, list[float]] = {True: [], False: []}
    for before, pair in zip(samples(60), update.prepare(samples(60), Random(0)), strict=True):
        shares[pair.matched].append(float((pair.text == V.mask).float().mean()))
        shares[pair.matched].append(float(pair.regions.hidden.float().mean()))
        if pair.matched:
            assert (pair.text_labels != IGNORE).any()
            assert torch.equal(torch.where(pair.text_labels != IGNORE, pair.text_labels, pair.text), before.text)
        else:
            assert (pair.text_labels == IGNORE).all()
            assert not pair.regions.chosen.any()
    assert mean(shares[True]) == pytest.approx(mean(shares[False]), abs=0.1)
    assert mean(shares[False]) > 0.5


def test_features_are_told_by_hand():
    model = toy.model("region_feature", hidden_regions="paper")
    for distance in ("sum", "mean"):
        objective = MaskedRegionFeature(rate=0.6, distance=distance)
        batch = collate(objective.prepare([toy.sample(0, 4), toy.sample(1, 2)], Random(1)))
        chosen = [(b, r) for b in range(2) for r in range(4) if batch.chosen[b, r]]
        assert 0 < len(chosen) < 6
        states, head = model(batch), model.heads["region_feature"]
        by_hand = torch.zeros(())
        for b, r in chosen:
            apart = ((head(states.regions[b, r]) - batch.features[b, r]) ** 2).sum()
            by_hand = by_hand + (apart if distance == "sum" else apart / 6)
        torch.testing.assert_close(objective.loss(model, states, batch), by_hand)
        assert int(objective.count(batch)) == len(chosen)
    without = replace(batch, features=None)
    assert objective.count(without) == 0
    assert objective.loss(model, states, without) == 0


@pytest.mark.slow
def test_features_are_asked_where_classes_are():
    chosen = MaskedRegionClass(rate=0.5).prepare(samples(5), Random(0))
    again = MaskedRegionFeature(rate=0.5).prepare(chosen, Random(1))
    assert all(torch.equal(a.regions.chosen, b.regions.chosen) for a, b in zip(chosen, again, strict=True))
    many = MaskedRegionFeature().prepare([toy.sample(n, 5) for n in range(2000)], Random(0))
    drawn = torch.stack([s.regions.chosen for s in many])
    hidden = torch.stack([s.regions.hidden for s in many])
    assert abs(drawn.float().mean() - 0.15) < 0.02
    assert abs(hidden.sum() / drawn.sum() - 0.9) < 0.03
    assert not (hidden & ~drawn).any()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), count=st.integers(1, 8), pictures=st.integers(1, 4), size=st.integers(2, 5))
@pytest.mark.parametrize("negatives", ["captions", "pictures", "both"])
def test_groups_begin_with_the_right_pair(negatives, seed, count, pictures, size):
    before = samples(count, pictures)
    belongs = {(s.picture, tuple(s.text.tolist())) for s in before}
    pairs = MatchGroups(pairs=size, negatives=negatives).prepare(before, Random(seed))
    sizes = group_sizes(collate(pairs))
    assert len(sizes) == count
    assert max(sizes) <= size
    for number, length in enumerate(sizes):
        group = pairs[sum(sizes[:number]) : sum(sizes[: number + 1])]
        assert [pair.matched for pair in group] == [True] + [False] * (length - 1)
        for pair in group:
            assert pair.matched == ((pair.picture, tuple(pair.text.tolist())) in belongs)
            if negatives == "captions":
                assert pair.picture == group[0].picture
            if negatives == "pictures":
                assert torch.equal(pair.text, group[0].text)
    again = MatchGroups("triplet", pairs=size).prepare(pairs, Random(seed))
    assert again is pairs, "of several losses in one update the first draws"


def test_both_directions_are_drawn_evenly():
    counts = Counter()
    for pair in MatchGroups(pairs=4).prepare(samples(60), Random(0)):
        own = pair.group.replace("toy", "picture")
        counts["right" if pair.matched else "caption" if pair.picture == own else "picture"] += 1
    assert counts["right"] == 60
    assert counts["caption"] + counts["picture"] == 180
    assert abs(counts["caption"] - 90) < 25


@pytest.mark.parametrize("on", ["probability", "log-odds"])
def test_the_three_losses_by_hand(on):
    model = toy.model("match")
    batch = collate(MatchGroups(pairs=3).prepare(samples(4), Random(0)))
    states = model(batch)
    scores = model.heads["match"](states)
    sizes, start, choice, triplet = group_sizes(batch), 0, torch.zeros(()), torch.zeros(())
    assert sizes == [3, 3, 3, 3]
    for size in sizes:
        own = scores[start : start + size]
        choice = choice - own.softmax(0)[0].log()
        near = own.sigmoid() if on == "probability" else own
        triplet = triplet + max(torch.zeros(()), 0.2 + max(near[1], near[2]) - near[0])
        start += size
    binary = F.binary_cross_entropy(scores.sigmoid(), batch.matched.float(), reduction="sum")
    for form, by_hand, count in (("binary", binary, 12), ("choice", choice, 4), ("triplet", triplet, 4)):
        objective = MatchGroups(form, pairs=3, on=on)
        torch.testing.assert_close(objective.loss(model, states, batch), by_hand)
        assert int(objective.count(batch)) == count


def test_a_group_without_wrong_pairs_has_nothing_to_choose_from():
    model = toy.model("match")
    twice = replace(toy.sample(0), key="again")
    batch = collate(MatchGroups("choice").prepare([toy.sample(0), twice], Random(0)))
    assert batch.groups == ["toy/0", "again"]
    for form in ("choice", "triplet"):
        loss = MatchGroups(form).loss(model, model(batch), batch)
        assert loss == 0
        assert loss.requires_grad, "a rank with nothing to predict still joins the reduction"
        assert int(MatchGroups(form).count(batch)) == 0
    assert int(MatchGroups("binary").count(batch)) == 2


def test_text_alone_is_neither_broken_nor_asked():
    before = [*samples(3), *(replace(toy.sample(n), picture=f"text/{n}", regions=None) for n in range(3, 6))]
    after = ImageTextMatching(rate=1.0).prepare(before, Random(0))
    assert all(
        pair.matched and torch.equal(pair.text, own.text) for own, pair in zip(before[3:], after[3:], strict=True)
    )
    texts = {tuple(s.text.tolist()) for s in before[3:]} - {tuple(s.text.tolist()) for s in before[:3]}
    assert not any(tuple(pair.text.tolist()) in texts for pair in after[:3])
    assert int(ImageTextMatching().count(collate(after))) == 3
