from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.core import BIDIRECTIONAL, IGNORE, TEXT_AFTER_REGIONS, Sample, States, collate
from diptych.objectives import MaskedLanguage
from diptych.objectives.words import smoothed, whole_words
from diptych.systems.unified_vlp.objectives import UnifiedVLPObjectives
from tests.support import toy

V = toy.VOCABULARY


def text_of(words: int) -> Sample:
    """Ids from 5 to 14: never [MASK], and never what a keep could be confused with."""
    return Sample("k", "p", None, torch.tensor([*(5 + n % 10 for n in range(words)), V.sep]))


@settings(max_examples=60, deadline=None)
@given(
    words=st.integers(0, 40),
    rate=st.floats(0, 1),
    most=st.none() | st.integers(1, 5),
    at_least=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_what_is_hidden_is_asked_for_and_nothing_else_changes(words, rate, most, at_least, seed):
    sample = text_of(words)
    objective = MaskedLanguage(V, rate=rate, most=most, at_least=at_least)
    (hidden,) = objective.prepare([sample], Random(seed))
    chosen = hidden.text_labels != IGNORE
    assert torch.equal(hidden.text_labels[chosen], sample.text[chosen])
    assert torch.equal(hidden.text[~chosen], sample.text[~chosen])
    wanted = min(max(at_least, round(rate * words)), words + 1)
    assert int(chosen.sum()) == (wanted if most is None else min(wanted, most))
    assert torch.equal(sample.text, text_of(words).text), "the sample itself was changed"
    again = objective.prepare([sample], Random(seed))[0]
    assert torch.equal(again.text, hidden.text)


def test_numbers_of_the_code():
    """min(max_pred, max(1, round(0.15 * words))): seq2seq_loader.py:251."""
    counted = [MaskedLanguage(V, most=3).how_many(words + 1) for words in (1, 3, 9, 10, 11, 17, 30)]
    assert counted == [1, 1, 1, 2, 2, 3, 3]
    assert MaskedLanguage(V).how_many(31) == 4


def test_shares_of_the_scheme_and_the_end_is_asked_for_too():
    objective, rng = MaskedLanguage(V, rate=1.0), Random(0)
    sample = replace(text_of(9), text=torch.tensor([5] * 9 + [V.sep]))
    samples = objective.prepare([sample] * 2000, rng)
    shown = Counter(int(w) for s in samples for w in s.text[:9][s.text_labels[:9] != IGNORE])
    total = sum(shown.values())
    # A random word is any of 20, so one in 20 of them is [MASK] and one is the word itself.
    assert shown[V.mask] / total == pytest.approx(0.8 + 0.1 / 20, abs=0.02)
    assert shown[5] / total == pytest.approx(0.1 + 0.1 / 20, abs=0.01)
    assert set(shown) == set(range(V.size))
    asked = sum(int(s.text_labels[9] == V.sep) for s in samples)
    assert asked / 2000 == pytest.approx(0.9, abs=0.03)  # 9 of 10 tokens are chosen


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 1.0])
def test_the_two_objectives_are_drawn_for_each_sample(share):
    objective = MaskedLanguage(V, attention=((TEXT_AFTER_REGIONS, share), (BIDIRECTIONAL, 1 - share)))
    drawn = Counter(s.attention.name for s in objective.prepare([text_of(3)] * 2000, Random(1)))
    assert drawn[TEXT_AFTER_REGIONS.name] / 2000 == pytest.approx(share, abs=0.03)
    assert set(drawn) <= {TEXT_AFTER_REGIONS.name, BIDIRECTIONAL.name}


@pytest.mark.parametrize("only_matched", [True, False])
def test_mismatched_captions(only_matched):
    swapped = replace(text_of(5), matched=False)
    (prepared,) = MaskedLanguage(V, only_matched=only_matched).prepare([swapped], Random(0))
    assert (prepared.text_labels == IGNORE).all() == only_matched
    (matched,) = MaskedLanguage(V, only_matched=only_matched).prepare([text_of(5)], Random(0))
    assert torch.equal(prepared.text, matched.text), "hidden alike"


class Fixed:
    """A model whose word head is the identity: states are scores."""

    heads = torch.nn.ModuleDict({"word": torch.nn.Identity()})
    provides = frozenset({"text"})

    def __call__(self, batch):
        raise AssertionError


def three_samples():
    """Losses by hand: the score of the expected word is a, all 19 others 0, so its cost is log(e^a + 19) - a."""
    samples = [text_of(2), text_of(2), text_of(2)]
    labels = [[5, IGNORE, V.sep], [IGNORE, 6, IGNORE], [5, 6, V.sep]]
    batch = collate([replace(s, text_labels=torch.tensor(row)) for s, row in zip(samples, labels, strict=True)])
    scores = torch.zeros(3, 3, V.size)
    heights = torch.tensor([[1.0, 0, 2.0], [0, -1.0, 0], [3.0, 3.0, 3.0]])
    for b in range(3):
        for t in range(3):
            if labels[b][t] != IGNORE:
                scores[b, t, labels[b][t]] = heights[b, t]
    cost = torch.log(heights.exp() + 19) - heights
    return batch, States(regions=torch.zeros(3, 0, V.size), text=scores), cost, batch.text_labels != IGNORE


def test_loss_is_the_sum_over_hidden_words_and_count_their_number():
    batch, states, cost, asked = three_samples()
    objective = MaskedLanguage(V)
    torch.testing.assert_close(objective.loss(Fixed(), states, batch), cost[asked].sum())
    assert int(objective.count(batch)) == 6


def test_drop_worst_leaves_out_the_samples_with_the_greatest_sum():
    batch, states, cost, asked = three_samples()
    objective = MaskedLanguage(V, drop_worst=0.34)  # int(3 * 0.66) = 1 is kept
    sums = (cost * asked).sum(1)
    best = int(sums.argmin())
    mean = objective.loss(Fixed(), states, batch) / objective.count(batch)
    torch.testing.assert_close(mean, sums[best] / asked.sum(1)[best])
    keeps_two = MaskedLanguage(V, drop_worst=0.3)
    worst = int(sums.argmax())
    kept = [n for n in range(3) if n != worst]
    mean = keeps_two.loss(Fixed(), states, batch) / keeps_two.count(batch)
    torch.testing.assert_close(mean, sums[kept].sum() / asked[kept].sum())


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_one_sample_is_always_kept(share: float) -> None:
    batch, states, cost, asked = three_samples()
    loss = MaskedLanguage(V, drop_worst=share).loss(Fixed(), states, batch)
    sums = (cost * asked).sum(1)
    torch.testing.assert_close(loss / asked.sum(), sums.min() / asked.sum(1)[sums.argmin()])
    with pytest.raises(ValueError, match="drop_worst"):
        UnifiedVLPObjectives(drop_worst=1.0)


def test_means_by_sample_by_hand():
    batch, states, cost, asked = three_samples()
    objective = MaskedLanguage(V, by_sample=True)
    samples = asked.any(1)
    assert int(objective.count(batch)) == int(samples.sum())
    means = ((cost * asked).sum(1) / (asked.sum(1) + 1e-4))[samples]
    mean = objective.loss(Fixed(), states, batch) / objective.count(batch)
    torch.testing.assert_close(mean, means.sum() / (len(means) + 1e-4))


def test_nothing_hidden_costs_nothing_and_still_has_a_gradient():
    batch = collate([text_of(2)])
    states = States(regions=torch.zeros(1, 0, V.size), text=torch.zeros(1, 3, V.size, requires_grad=True))
    switches = ({}, {"drop_worst": 0.5}, {"label_smoothing": 0.1}, {"by_sample": True})
    for objective in (MaskedLanguage(V, **switch) for switch in switches):
        loss = objective.loss(Fixed(), states, batch)
        assert loss.detach() == 0
        assert objective.count(batch) == 0
        loss.backward()


def test_label_smoothing_is_the_codes_divergence():
    scores, wanted = torch.randn(4, V.size), torch.tensor([5, 6, 0, 19])
    target = torch.full((4, V.size), 0.1 / (V.size - 2))
    target[:, V.pad] = 0
    target[torch.arange(4), wanted] = 0.9
    by_hand = torch.nn.functional.kl_div(scores.log_softmax(-1), target, reduction="none").sum(-1)
    by_hand[2] = 0  # a wanted [PAD]
    torch.testing.assert_close(smoothed(scores, wanted, 0.1, V.pad), by_hand)
    batch, states, cost, asked = three_samples()
    assert MaskedLanguage(V, label_smoothing=0.1).loss(Fixed(), states, batch) != cost[asked].sum()


def test_whole_words_share_a_fate_and_marks_are_no_words():
    inner = frozenset({10, 11})
    vocabulary = replace(toy.VOCABULARY, inner=inner)
    text = torch.tensor([5, 10, 11, 6, 7, 10, 3])  # 5##10##11 6 7##10 [SEP]
    assert whole_words(text, vocabulary) == [[0, 1, 2], [3], [4, 5]]
    objective = MaskedLanguage(
        vocabulary, rate=0.5, scheme=(0.5, 0.0, 0.5), whole_words=True, by_chance=True, at_least=0
    )
    sizes = set()
    for seed in range(60):
        (after,) = objective.prepare([Sample("a", "p", None, text)], Random(seed))
        asked = after.text_labels >= 0
        assert not asked[-1]
        for word in ([0, 1, 2], [3], [4, 5]):
            assert len(set(asked[word].tolist())) == 1
            masked = after.text[word] == vocabulary.mask
            assert bool(masked.all()) or not bool(masked.any())
        sizes.add(int(asked.sum()))
    assert {0, 6} <= sizes  # none is forced, and all can be chosen
    fixed = replace(objective, by_chance=False)  # two of three words, however many pieces they have
    ready = (fixed.prepare_one(Sample("a", "p", None, text), Random(seed)).text_labels for seed in range(60))
    assert {int((labels >= 0).sum()) for labels in ready if labels is not None} == {3, 4, 5}


def test_texts_of_pictures_and_texts_alone_are_two_objectives():
    alone, pair = text_of(4), replace(toy.sample(1), attention=BIDIRECTIONAL)
    model = toy.model("word")
    objectives = [MaskedLanguage(V, rate=0.5, of=of, name=of) for of in ("pictured", "alone")]
    for objective, own, other in zip(objectives, (pair, alone), (alone, pair), strict=True):
        hidden, untouched = objective.prepare([own, other], Random(0))
        assert hidden.text_labels is not None
        assert untouched is other
    hidden = [o.prepare([s], Random(0))[0] for o, s in zip(objectives, (pair, alone), strict=True)]
    batch = collate(hidden)
    states, both = model(batch), MaskedLanguage(V)
    asked = [int((s.text_labels != IGNORE).sum()) for s in hidden]
    assert [int(o.count(batch)) for o in objectives] == asked
    total = sum(o.loss(model, states, batch) for o in objectives)
    torch.testing.assert_close(total, both.loss(model, states, batch))
