"""XGPT: what it looks at, its switches, and that its cache changes nothing."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from diptych.core import REGIONS_AFTER_TEXT, Batch, Sample, collate
from diptych.models.decoding import DecodingOptions, search
from diptych.models.transformer import LayerSizes
from diptych.objectives import (
    AnswerQuestion,
    Denoise,
    GenerateFragment,
    GenerateRegions,
    GenerateText,
    MaskedQueries,
    MatchGroups,
    OneForward,
)
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems.xgpt.layers import Grounding, RefiningLayer
from diptych.systems.xgpt.model import Xgpt, XgptConfig
from tests.support import generators, toy
from tests.support.generators import ragged, taught
from tests.support.toy import xgpt as model

V = toy.VOCABULARY
STRUCTURES = ["enc", "encdec", "encdec-share"]
CAPTION = GenerateText(V, reads="nothing")
SIZES = LayerSizes(width=8, heads=2, ffn=16, dropout=0.0, attention_dropout=0.0, norm_eps=1e-12)


def asked(objective: Any, samples: list[Sample], seed: int = 0) -> Batch:
    return collate(objective.prepare(samples, Random(seed)))


# ---- who sees what -----------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
@torch.no_grad()
def test_a_word_is_written_from_the_regions_and_the_words_before_it(structure):
    xgpt, batch = model(structure=structure), asked(CAPTION, [toy.sample(1, 3)])
    before = xgpt(batch).target
    later = batch.target.clone()
    later[0, 3] = 17
    after = xgpt(replace(batch, target=later)).target
    moved = (before - after).abs().amax(-1)[0] > 1e-5
    assert moved.tolist() == [False, False, False, True, True]
    assert (xgpt(replace(batch, boxes=batch.boxes * 0.5)).target - before).abs().min(-1).values.max() > 1e-4


@pytest.mark.parametrize("structure", STRUCTURES)
@torch.no_grad()
def test_no_box_and_no_feature_reaches_what_regions_are_told_from(structure):
    """TIFG: the decoder's states are a function of the text alone, bit for bit."""
    xgpt, batch = model(structure=structure), asked(GenerateRegions(V), [toy.sample(1, 3), toy.sample(2, 5)])
    states = xgpt(batch)
    assert states.target.shape == (2, 5, 32)
    other = replace(batch, boxes=torch.rand_like(batch.boxes), features=torch.randn_like(batch.features))
    assert torch.equal(xgpt(other).target, states.target)
    assert torch.equal(xgpt(other).text, states.text)
    changed = batch.text.clone()
    changed[0, 0] = 17
    assert (xgpt(replace(batch, text=changed)).target[0] - states.target[0]).abs().min(-1).values.max() > 1e-4
    assert not torch.allclose(states.target[0, 0], states.target[0, 1], atol=1e-3), "each query is its own"


@torch.no_grad()
def test_padding_and_company_change_nothing():
    xgpt = model()
    for objective in (CAPTION, Denoise(V), GenerateFragment(V), GenerateRegions(V)):
        samples = [toy.sample(seed, count) for seed, count in enumerate((1, 5, 3))]
        prepared = objective.prepare(samples, Random(1))
        together = xgpt(collate(prepared))
        for row, sample in enumerate(prepared):
            alone = xgpt(collate([sample]))
            length = alone.target.shape[1]
            torch.testing.assert_close(alone.target[0], together.target[row, :length], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_fragment_is_written_at_its_own_places():
    xgpt = model()
    (sample,) = GenerateFragment(V, scheme=(1.0, 0.0, 0.0)).prepare([toy.sample(1, 4)], Random(1))
    assert sample.target_start > 0
    there = xgpt(collate([sample])).target
    assert not torch.allclose(there, xgpt(collate([replace(sample, target_start=0)])).target, atol=1e-3)


# ---- words as regions --------------------------------------------------------------------------------


@torch.no_grad()
def test_the_attention_matrix_of_ida_by_hand():
    """A_ij = W [x_i | x_j | x_i * x_j], W = (1 0 | 0 2 | 1 1): word (1, 2), regions (1, 0), (0, 1), one absent."""
    grounding = Grounding(2)
    grounding.score.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 2.0, 1.0, 1.0]]))
    word, regions = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    present = torch.tensor([[True, True, False]])
    scores = torch.tensor([1 + 0 + 1.0, 1 + 2 + 2.0])
    wanted = torch.softmax(scores, 0)
    torch.testing.assert_close(grounding.weights(word, regions, present)[0, 0, :2], wanted)
    torch.testing.assert_close(grounding(word, regions, present)[0, 0], wanted)
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert torch.equal(grounding(word, regions, nothing), word), "a word with no region to look at stays a word"


@torch.no_grad()
def test_grounded_words_are_nothing_but_regions():
    """With one region every word is read as that region: which words they were cannot be told."""
    xgpt, sample = model(), toy.sample(3, 1)
    (damaged,) = Denoise(V).prepare([sample], Random(0))
    other = replace(damaged, text=torch.full_like(damaged.text, 11))
    assert torch.equal(xgpt(collate([damaged])).target, xgpt(collate([other])).target)
    words = replace(damaged, grounded=False), replace(other, grounded=False)
    assert not torch.allclose(xgpt(collate([words[0]])).target, xgpt(collate([words[1]])).target, atol=1e-3)


# ---- the refining layer ------------------------------------------------------------------------------


@torch.no_grad()
def test_the_refining_layer_is_the_appendix_s_formula():
    layer, x = RefiningLayer(SIZES).eval(), torch.randn(2, 3, 8)
    present = torch.tensor([[True, True, True], [True, False, False]])
    q, k, v = layer.qkv(x).chunk(3, -1)
    found = torch.zeros_like(x)
    for b in range(2):
        for head in (slice(0, 4), slice(4, 8)):
            scores = (q[b, :, head] @ k[b, :, head].T) / 2
            scores[:, ~present[b]] = -torch.inf
            found[b, :, head] = scores.softmax(-1) @ v[b, :, head]
    w1, w2 = layer.gate.weight.chunk(2, -1)
    w3, w4 = layer.found.weight.chunk(2, -1)
    gate = torch.sigmoid(q @ w1.T + found @ w2.T + layer.gate.bias)
    wanted = layer.norm(x + gate * (q @ w3.T + found @ w4.T + layer.found.bias))
    torch.testing.assert_close(layer(x, present), wanted, atol=1e-6, rtol=1e-5)


def test_the_refining_layer_is_a_switch():
    assert not list(model(refining_layers=0).refining)
    assert len(model(refining_layers=2).refining) == 2


# ---- structures --------------------------------------------------------------------------------------


def count(xgpt: Xgpt) -> int:
    return sum(p.numel() for p in xgpt.parameters())


def test_table_3_shares_what_it_says():
    """A layer of 32 and 64: attention 4,224, feed-forward 4,192, two norms 128."""
    enc, apart, shared = (model(structure=structure) for structure in STRUCTURES)
    layer, attention, norm = 4 * 32 * 33 + 32 * 64 + 64 + 64 * 32 + 32 + 4 * 32, 4 * 32 * 33, 2 * 32
    assert count(apart) - count(enc) == 2 * (layer + attention + norm)
    assert count(shared) - count(enc) == 2 * norm
    assert count(model(signal="learnt")) - count(shared) == 2 * 2 * 32, "for keys and for values"
    assert not any("decoder" in name for name in shared.state_dict())


def test_the_paper_s_sizes():
    base, tiny = XgptConfig.base(), XgptConfig.tiny()
    assert (base.layers, base.width, base.heads, base.positions, base.max_regions) == (12, 768, 8, 60, 100)
    assert tiny.layers == 6
    assert tiny.model_copy(update={"layers": 12}) == base


@torch.no_grad()
def test_both_ways_of_sharing_attention_are_there():
    batch = asked(CAPTION, [toy.sample(1, 3)])
    after, joint = model(), model(cross="joint")
    assert any("cross_norm" in name for name in after.state_dict())
    assert not any("cross_norm" in name for name in joint.state_dict())
    assert after(batch).target.shape == joint(batch).target.shape


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"width": 30, "heads": 4}, "width 30 is not divisible by 4 heads"),
        ({"structure": "enc", "cross": "joint"}, "but structure=enc; change"),
        ({"positions": 2}, "positions=2 is too small for words"),
    ],
)
def test_shapes_that_cannot_be(changes, wanted):
    with pytest.raises(ValueError, match=wanted):
        XgptConfig(**changes)


# ---- writing -----------------------------------------------------------------------------------------


@pytest.mark.learns
@pytest.mark.parametrize("changes", [{"structure": s} for s in STRUCTURES] + [{"cross": "joint"}], ids=str)
def test_cached_equals_uncached_on_a_trained_model(changes):
    xgpt = taught(model("word", std=0.05, **changes), CAPTION, steps=100)
    greedy, wide = (DecodingOptions(beams=beams, max_words=9) for beams in (1, 3))
    for options in (greedy, wide):
        generators.check_cached_equals_uncached(xgpt, "xgpt", options)
    generators.check_names_its_regions(xgpt, 3, wide)


@torch.no_grad()
def test_regions_are_read_once_and_a_word_costs_a_row():
    xgpt, rows = model("word"), []
    layer = xgpt.encoder[0].attention
    mix, project = layer.mix, layer.project
    layer.mix = lambda q, *rest: rows.append(q.shape[0] * q.shape[2]) or mix(q, *rest)
    layer.project = lambda x, *rest: rows.append(x.shape[0] * x.shape[1]) or project(x, *rest)
    search(xgpt, ragged(), DecodingOptions(beams=3, max_words=4, stop_early=False))
    # The encoder projects and mixes 6 pictures of 5 regions; then one row a beam, the first step having one beam.
    assert rows == [30, 30, 6, 18, 18, 18]


def asking(objective: Any, seed: int) -> Sample:
    """A sample from which what is asked can be known."""
    sample = toy.sample(seed, 3)
    if objective.name == "answer":  # one of seven, told by nothing but the picture
        text = torch.tensor([6, 7, V.sep, V.mask, V.sep])
        return replace(sample, text=text, truth={"answer_scores": {seed % 7: 1.0}})
    if objective.name == "generate_regions":  # no two texts alike, or one has two pictures
        return replace(sample, text=torch.tensor([5 + seed, *sample.text[1:].tolist()]))
    return sample


# ---- each task can be learnt -------------------------------------------------------------------------


@pytest.mark.learns
@pytest.mark.parametrize(
    "objective",
    [
        Denoise(V, masks="multi", grounded=False),
        AnswerQuestion(V, form="softmax"),
        MatchGroups(pairs=2),
    ],
    ids=lambda o: f"{o.name}{'' if getattr(o, 'grounded', True) else '/words'}",
)
def test_eight_samples_are_learnt_by_heart(objective):
    """The same damage every time, so that all of it can be known: the loss falls to a fifth or less."""
    xgpt, update = model(*objective.heads, std=0.05).train(), OneForward((objective,))
    optimizer = torch.optim.AdamW(xgpt.parameters(), lr=3e-3, fused=True)
    batch = asked(update, [asking(objective, seed) for seed in range(8)])
    costs = []
    for _ in range(120):
        (losses,) = update.losses(xgpt, batch)
        cost = losses[objective.name] / update.counts(batch)[objective.name]
        cost.backward()
        optimizer.step()
        optimizer.zero_grad()
        costs.append(float(cost.detach()))
    assert costs[-1] < 0.2 * costs[0], costs[::20]


# ---- what cannot be read -----------------------------------------------------------------------------


@torch.no_grad()
def test_a_picture_without_regions_is_read_as_nothing_whatever_its_company():
    xgpt = model("word")
    empty = Sample("none", "p", toy.regions(0), torch.zeros(0, dtype=torch.long))
    alone, _ = xgpt.begin(collate([empty]), 5)
    beside, _ = xgpt.begin(collate([empty, replace(toy.sample(1, 5), text=empty.text)]), 5)
    torch.testing.assert_close(alone[0], beside[0], atol=1e-5, rtol=1e-5)
    assert alone.isfinite().all()
    for objective in (CAPTION, Denoise(V), GenerateFragment(V), GenerateRegions(V)):
        batch = asked(objective, [replace(toy.sample(1, 2), regions=toy.regions(0))])
        assert objective.loss(xgpt, xgpt(batch), batch).isfinite() if objective.name != "generate_regions" else True


def test_too_much_is_refused_with_the_way_out():
    with pytest.raises(DataError, match=r"6 regions, but the model reads at most 5; .* raise model.max_regions"):
        model()(collate([toy.sample(1, 5), toy.sample(2, 6)]))
    long = replace(toy.sample(1, 1), text=torch.full((13,), 7))
    with pytest.raises(DataError, match=r"a text has 13 words, .* positions for 12; shorten it"):
        model()(collate([long]))
    with pytest.raises(RecipeError, match="the captions need 13 words"):
        model().begin(collate([toy.sample(1, 1)]), 13)
    with pytest.raises(RecipeError, match=r"set model\.answer_slot=true"):
        model("answer", answer_slot=False)
    with pytest.raises(RecipeError, match="attention mask 'queries before'; use the objective generate_text"):
        model()(asked(MaskedQueries(V), [toy.sample(1, 2)]))
    mixed = [*CAPTION.prepare([toy.sample(1)], Random(0)), *GenerateRegions(V).prepare([toy.sample(2)], Random(0))]
    assert mixed[1].attention is REGIONS_AFTER_TEXT
    with pytest.raises(RecipeError, match="train these objectives in turn"):
        model()(collate(mixed))
