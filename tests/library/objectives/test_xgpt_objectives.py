"""XGPT's tasks: what they hide, what they ask, what a wrong guess costs."""

from itertools import pairwise
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.core import BIDIRECTIONAL, IGNORE, REGIONS_AFTER_TEXT, Batch, Sample, States, collate
from diptych.objectives import (
    Denoise,
    GenerateFragment,
    GenerateRegions,
    MaskedLanguage,
    MaskedQueries,
    OneForward,
    Schedule,
)
from diptych.objectives.denoise import draw_spans, mask_spans
from diptych.objectives.generate_fragment import fragment_length
from diptych.runtime.errors import RecipeError
from diptych.systems.xgpt.objectives import XgptObjectives
from tests.support import toy

V = toy.VOCABULARY
WORDS = st.lists(st.integers(5, 14), max_size=14)
SEEDS = st.integers(0, 10**6)


def text_of(*words: int) -> Sample:
    return Sample("k", "p", toy.regions(2), torch.tensor([*words, V.sep]))


# ---- IMLM and MASS -----------------------------------------------------------------------------------


@given(words=WORDS, seed=SEEDS)
def test_a_fragment_and_what_is_left_make_the_sentence(words, seed):
    (sample,) = GenerateFragment(V, scheme=(1.0, 0.0, 0.0)).prepare([text_of(*words)], Random(seed))
    start, fragment = sample.target_start, sample.target_labels.tolist()
    assert len(fragment) == fragment_length(len(words), 0.5)
    assert abs(len(fragment) - len(words) / 2) <= 0.5 or len(words) == 1
    assert words[start : start + len(fragment)] == fragment
    left = sample.text.tolist()
    assert left[start : start + len(fragment)] == [V.mask] * len(fragment)
    assert left[:start] + fragment + left[start + len(fragment) :] == [*words, V.sep]
    assert sample.target.tolist() == ([V.cls, *fragment[:-1]] if fragment else [])
    assert sample.text_labels is None
    assert sample.regions is not None


def test_a_fragment_s_words_are_hidden_as_bert_does():
    """A.2: 80% [MASK], 10% any word, 10% as they were; the decoder is asked for all of them."""
    rng, counts = Random(0), {"mask": 0, "kept": 0, "other": 0}
    for _ in range(400):
        (sample,) = GenerateFragment(V).prepare([text_of(*[7] * 10)], rng)
        assert sample.target_labels.tolist() == [7] * 5
        for word in sample.text[sample.target_start : sample.target_start + 5].tolist():
            counts["mask" if word == V.mask else "kept" if word == 7 else "other"] += 1
    assert counts["mask"] / 2000 == pytest.approx(0.8 + 0.1 / 20, abs=0.03)
    assert counts["kept"] / 2000 == pytest.approx(0.1 + 0.1 / 20, abs=0.03)


def test_the_words_before_a_fragment_may_be_read():
    """Eq. 3 to the letter: given all that comes before, of which nothing is asked."""
    (alone,), (sample,) = (
        GenerateFragment(V, context=context).prepare([text_of(5, 6, 7, 8)], Random(0)) for context in (False, True)
    )
    start, end = alone.target_start, alone.target_start + 2
    assert start > 0
    assert sample.target_start == 0
    assert sample.target.tolist() == [V.cls, 5, 6, 7, 8][:end]
    assert sample.target_labels.tolist() == [IGNORE] * start + [5, 6, 7, 8][start:end]
    assert alone.target_labels.tolist() == [5, 6, 7, 8][start:end]
    assert torch.equal(alone.text, sample.text)
    (named,) = XgptObjectives(captions=0, denoising=0, regions=0, fragment_context=True).schedule(V).objectives
    assert named.context


def test_on_text_alone_no_picture_is_read():
    for objective in (
        GenerateFragment(V, alone=True),
        MaskedLanguage(V, alone=True, attention=((BIDIRECTIONAL, 1.0),), hides_end=False),
    ):
        (sample,) = objective.prepare([text_of(5, 6, 7)], Random(0))
        assert sample.regions is None
        assert V.sep in sample.text


def test_the_loss_of_a_fragment_by_hand():
    """Scores are the states themselves: one word of two guessed at with a score of 2, the other not at all."""
    model = toy.model("word")
    model.heads["word"] = torch.nn.Identity()
    batch = collate(GenerateFragment(V, share=1.0).prepare([text_of(6, 7)], Random(0)))
    states = States(torch.zeros(1, 2, 20), torch.zeros(1, 3, 20), target=torch.zeros(1, 2, 20))
    states.target[0, 1, 7] = 2.0
    objective = GenerateFragment(V)
    assert int(objective.count(batch)) == 2
    e2 = float(torch.tensor(2.0).exp())
    wanted = float(torch.tensor(20.0).log()) - 2 + float(torch.tensor(e2 + 19).log())
    assert float(objective.loss(model, states, batch)) == pytest.approx(wanted, rel=1e-6)


# ---- IDA ---------------------------------------------------------------------------------------------


@given(
    words=st.integers(0, 40),
    share=st.floats(0.01, 1.0),
    mean=st.floats(0.1, 60.0),
    seed=SEEDS,
)
def test_spans_are_parted_and_as_many_words_as_asked(words, share, mean, seed):
    """Whatever the lengths drawn: a span longer than the sentence is cut to what is to be hidden."""
    spans = draw_spans(words, share, mean, Random(seed))
    hidden = min(words, max(1, round(share * words)))
    assert sum(end - start for start, end in spans) == hidden
    assert all(0 <= start < end <= words for start, end in spans)
    assert all(end < start for (_, end), (start, _) in pairwise(spans)), "a word between any two"


def test_span_lengths_are_poisson():
    """Of a long text: mean 3, and 1 in place of the draws of 0 (5%)."""
    rng = Random(0)
    lengths = [end - start for _ in range(60) for start, end in draw_spans(400, 0.3, 3.0, rng)[:-1]]
    assert sum(lengths) / len(lengths) == pytest.approx(3.05, abs=0.1)
    assert lengths.count(3) / len(lengths) == pytest.approx(0.224, abs=0.03)


def one_word(words, **changes):
    """The share of the spans of such captions that have one word."""
    rng = Random(0)
    lengths = [end - start for _ in range(4000) for start, end in draw_spans(words, 0.3, 3.0, rng, **changes)]
    return lengths.count(1) / len(lengths)


def test_a_third_of_the_spans_of_short_captions_are_one_word():
    """docs/fidelity.md: for these Table 4's two ways of masking are the same."""
    assert one_word(10) == pytest.approx(0.34, abs=0.02)
    assert one_word(40) == pytest.approx(0.26, abs=0.02)
    assert one_word(10, at_least=2) == 0


@given(words=st.integers(0, 40), share=st.floats(0.01, 1.0), least=st.integers(1, 5), seed=SEEDS)
def test_spans_are_as_long_as_asked_for_wherever_there_are_words(words, share, least, seed):
    spans = draw_spans(words, share, 3.0, Random(seed), least)
    assert all(end - start >= min(least, words) for start, end in spans)
    assert sum(end - start for start, end in spans) == min(words, max(least, round(share * words)))


def test_the_least_length_of_spans_is_a_key_of_recipes():
    (update,) = (u for u, _ in XgptObjectives(captions=0, fragments=0, regions=0, span_at_least=2).schedule(V).updates)
    (damaged,) = update.prepare([text_of(*range(5, 15))], Random(0))
    assert (damaged.text == V.mask).sum() == 1, "3 of 10 words, in spans of 2 at least"


def test_single_and_multi_mask():
    """Table 4."""
    text, spans = torch.tensor([5, 6, 7, 8, 9, V.sep]), [(0, 2), (3, 4)]
    assert mask_spans(text, spans, V.mask, "single").tolist() == [V.mask, 7, V.mask, 9, V.sep]
    assert mask_spans(text, spans, V.mask, "multi").tolist() == [V.mask, V.mask, 7, V.mask, 9, V.sep]


@given(words=WORDS, seed=SEEDS, masks=st.sampled_from(["single", "multi"]))
def test_the_whole_sentence_is_asked_for(words, seed, masks):
    (sample,) = Denoise(V, masks=masks).prepare([text_of(*words)], Random(seed))
    assert sample.target.tolist() == [V.cls, *words]
    assert sample.target_labels.tolist() == [*words, V.sep]
    assert sample.text[-1] == V.sep
    assert sample.grounded
    left = [word for word in sample.text.tolist() if word != V.mask]
    assert len(left) - 1 == len(words) - min(len(words), max(1, round(0.3 * len(words))))
    if masks == "multi":
        assert len(sample.text) == len(words) + 1
    assert ((sample.text == V.mask).sum() > 0) == (len(words) > 0)


def test_only_a_model_that_can_ground_words_is_asked_to():
    with pytest.raises(RecipeError, match="denoise needs grounded, but unified_vlp provides"):
        Schedule(((OneForward((Denoise(V),)), 1.0),)).check(toy.model().provides, "unified_vlp")
    Schedule(((OneForward((Denoise(V, grounded=False),)), 1.0),)).check(toy.model().provides, "unified_vlp")


# ---- TIFG --------------------------------------------------------------------------------------------


def two_pictures() -> Batch:
    samples = [toy.sample(1, 2), toy.sample(2, 1)]
    return collate(GenerateRegions(V).prepare(samples, Random(0)))


def test_a_query_a_region_and_no_look_at_any():
    batch = two_pictures()
    assert batch.target.tolist() == [[V.mask, V.mask], [V.mask, 0]]
    assert batch.target_present.tolist() == [[True, True], [True, False]]
    assert batch.attention == [REGIONS_AFTER_TEXT] * 2


@pytest.mark.parametrize(("error", "wanted"), [("sum", 3 * 6 * 0.25), ("mean", 3 * 0.25)])
def test_the_loss_of_features_by_hand(error, wanted):
    """Each number of three features of six is off by a half; what is said of padding costs nothing. Eq. 5's mean over
    regions is sum / count.
    """
    model, batch, objective = toy.model("word"), two_pictures(), GenerateRegions(V, error)
    model.heads["region_feature"] = torch.nn.Identity()
    said = batch.features + 0.5
    said[1, 1] = 99.0
    states = States(torch.zeros(2, 2, 6), torch.zeros(2, 3, 6), target=said)
    assert int(objective.count(batch)) == 3
    assert float(objective.loss(model, states, batch)) == pytest.approx(wanted, rel=1e-6)


def test_the_wanted_features_carry_no_gradient():
    model, batch = toy.model("word"), two_pictures()
    model.heads["region_feature"] = torch.nn.Linear(6, 6)
    batch.features.requires_grad_()
    states = States(torch.zeros(2, 2, 6), torch.zeros(2, 3, 6), target=torch.ones(2, 2, 6))
    GenerateRegions(V).loss(model, states, batch).backward()
    assert batch.features.grad is None
    assert model.heads["region_feature"].weight.grad is not None


def test_a_picture_without_regions_is_asked_nothing():
    (sample,) = GenerateRegions(V).prepare([Sample("k", "p", toy.regions(0), torch.tensor([5, V.sep]))], Random(0))
    assert int(GenerateRegions(V).count(collate([sample]))) == 0


# ---- in turn -----------------------------------------------------------------------------------------


def test_tasks_take_turns_with_the_weights_of_their_stage():
    schedule = XgptObjectives(fragments=0.3, denoising=0.3, regions=0.3).schedule(V)
    names = [schedule.at(step).objectives[0].name for step in range(5)]
    assert names == ["generate_text", "generate_fragment", "denoise", "generate_regions", "generate_text"]
    weights = [dict(schedule.at(step).weights) for step in range(4)]
    assert weights == [{"generate_text": 1.0}, *({name: 0.3} for name in names[1:4])]


def test_a_weight_scales_its_loss():
    """What the trainer makes of it: the sum times weight over count (training/step.py)."""
    halved, whole = (OneForward((MaskedQueries(V),), {"masked_queries": w} if w else {}) for w in (0.5, 0))
    assert halved.weights["masked_queries"] == 0.5
    assert not whole.weights
    with pytest.raises(RecipeError, match="set their weights to 1, and weight losses in an update"):
        Schedule(((halved, 0.5), (whole, 1.0)), "in turn")


def test_a_task_of_weight_0_has_no_turn():
    text = XgptObjectives(captions=0, fragments=0, denoising=0, regions=0, text_words=1, text_fragments=1).schedule(V)
    assert [text.at(step).objectives[0].name for step in range(3)] == [
        "masked_language",
        "text_fragment",
        "masked_language",
    ]
    with pytest.raises(ValueError, match="are all 0: nothing is trained"):
        XgptObjectives(captions=0, fragments=0, denoising=0, regions=0)
