from dataclasses import replace
from random import Random

import pytest
import torch

from diptych.core import BIDIRECTIONAL, IGNORE, QUERIES_BEFORE, Regions, Sample, States, collate
from diptych.objectives import (
    AnswerQuestion,
    MaskedLanguage,
    MaskedQueries,
    MaskedRegionClass,
    MaskedRegionFeature,
    RegionContrast,
    SeenRegionClass,
)
from tests.support import toy

V = toy.VOCABULARY


def test_queries_ask_for_every_word():
    sample = toy.sample(1)
    (asked,) = MaskedQueries(V).prepare([sample], Random(0))
    assert torch.equal(asked.text, sample.text)
    assert asked.target.tolist() == [V.mask] * len(sample.text)
    assert torch.equal(asked.target_labels, sample.text)
    assert asked.attention == QUERIES_BEFORE
    batch = collate(MaskedQueries(V).prepare([toy.sample(1, 2), toy.sample(2, 3)], Random(0)))
    assert int(MaskedQueries(V).count(batch)) == 4 + 5
    swapped = replace(sample, matched=False)
    (quiet,) = MaskedQueries(V, only_matched=True).prepare([swapped], Random(0))
    assert (quiet.target_labels == IGNORE).all()


@pytest.mark.parametrize("least", [0, 1, 3])
def test_as_many_regions_are_chosen_as_are_wanted(least):
    """Also where chance chooses none; a picture that has fewer gives all it has."""
    for objective in (MaskedRegionClass(rate=0.0, at_least=least), MaskedRegionFeature(rate=0.0, at_least=least)):
        prepared = objective.prepare([toy.sample(n, n % 5 + 1) for n in range(20)], Random(0))
        assert [int(one.regions.chosen.sum()) for one in prepared] == [min(least, n % 5 + 1) for n in range(20)]


def test_words_are_chosen_by_chance_but_one():
    """UNITER's and BERT's code: each piece by itself, so that their number differs."""
    objective = MaskedLanguage(V, rate=0.5, by_chance=True, hides_end=False)
    found = [int((one.text_labels != IGNORE).sum()) for one in objective.prepare([toy.sample(1, 5)] * 200, Random(0))]
    assert min(found) >= 1
    assert len(set(found)) > 3
    assert sum(found) / 200 == pytest.approx(0.5 * (len(toy.sample(1, 5).text) - 1), rel=0.15)


@pytest.mark.parametrize(
    ("background", "regions", "wanted"),
    [(None, [0, 1, 2, 3], [0, 2, 0, 0]), (0, [0, 1, 2], [1, 2, 3]), (2, [0, 1, 2, 3], [0, 1, 0, 0])],
)
def test_the_background_is_no_hard_label(background, regions, wanted):
    """The best of the other classes is asked for; of a region that is nothing but background, none."""
    batch = collate(MaskedRegionClass(rate=1.0, hidden=0.0).prepare([toy.sample(0, 4)], Random(0)))
    told = [[0.6, 0.3, 0.1, 0.0], [0.1, 0.2, 0.6, 0.1], [0.9, 0.0, 0.0, 0.1], [1.0, 0.0, 0.0, 0.0]]
    batch = replace(batch, classes=torch.tensor([told]).half(), background=background)
    model, heads = toy.model("region_class"), torch.nn.Linear(32, 4)
    model.heads["seen_class"] = heads
    states = States(regions=torch.randn(1, 4, 32), text=torch.zeros(1, 1, 32))
    masked = model.heads["region_class"](states.regions)[0].log_softmax(-1)
    cost = MaskedRegionClass(rate=1.0).loss(model, states, batch)
    torch.testing.assert_close(cost, -masked[regions, wanted].sum())
    assert int(MaskedRegionClass(rate=1.0).count(batch)) == len(regions)
    assert int(MaskedRegionClass(rate=1.0, labels="soft").count(batch)) == 4
    states = replace(states, embedded={"features": states.regions})
    seen = SeenRegionClass().loss(model, states, batch)
    torch.testing.assert_close(seen, -heads(states.regions)[0].log_softmax(-1)[regions, wanted].sum())


@torch.no_grad()  # a cache of words is written in place
def test_queries_ask_what_decoding_asks():
    """The loss is minus the log-probability that the cached decoder gives to the same words."""
    model, samples = toy.model(), [toy.sample(1, 3), toy.sample(2, 1)]
    batch = collate(MaskedQueries(V).prepare(samples, Random(0)))
    total = torch.zeros(())
    for sample in samples:
        alone = collate([sample])
        scores, memory = model.begin(alone, 8)
        for word in sample.text.tolist():
            total = total - scores.flatten().log_softmax(-1)[word]
            scores = model.follow(memory, torch.tensor([[word]]), torch.tensor([[0]]))
    torch.testing.assert_close(MaskedQueries(V).loss(model, model(batch), batch), total)


def test_regions_are_chosen_at_their_rate_and_nine_in_ten_hidden():
    samples = [toy.sample(n, 5) for n in range(400)]
    prepared = MaskedRegionClass().prepare(samples, Random(0))
    chosen = torch.stack([s.regions.chosen for s in prepared])
    hidden = torch.stack([s.regions.hidden for s in prepared])
    assert float(chosen.float().mean()) == pytest.approx(0.15, abs=0.025)
    assert float(hidden[chosen].float().mean()) == pytest.approx(0.9, abs=0.05)
    assert not hidden[~chosen].any()
    assert samples[0].regions.hidden is None
    assert MaskedRegionClass().prepare([replace(samples[0], regions=None)], Random(0))[0].regions is None
    apart = replace(samples[0], matched=False)
    (asked, quiet) = MaskedRegionClass(rate=1.0, only_matched=True).prepare([samples[0], apart], Random(0))
    assert asked.regions.chosen.all()
    assert not quiet.regions.chosen.any()
    assert quiet.regions.hidden.any()


@pytest.mark.parametrize("labels", ["hard", "soft"])
def test_region_class_loss_by_hand(labels):
    objective = MaskedRegionClass(rate=1.0, labels=labels)
    batch = collate(objective.prepare([toy.sample(0, 2), toy.sample(1, 1)], Random(0)))
    model = toy.model("region_class")
    states = model(batch)
    logs = model.heads["region_class"](states.regions).log_softmax(-1)
    by_hand = torch.zeros(())
    for b, count in enumerate((2, 1)):
        for r in range(count):
            wanted = batch.classes[b, r]
            by_hand = by_hand - (logs[b, r, wanted.argmax()] if labels == "hard" else (wanted * logs[b, r]).sum())
    torch.testing.assert_close(objective.loss(model, states, batch), by_hand)
    assert int(objective.count(batch)) == 3
    unlabelled = replace(batch, classes=None)
    assert objective.count(unlabelled) == 0
    assert objective.loss(model, states, unlabelled) == 0


def test_region_contrast_by_hand():
    objective = RegionContrast(rate=0.5)
    batch = collate(objective.prepare([toy.sample(0, 4), toy.sample(1, 5), toy.sample(2, 1)], Random(0)))
    assert batch.chosen.sum(1).tolist() == [2, 2, 0]  # int(count * rate)
    assert torch.equal(batch.chosen, batch.hidden)
    model = toy.model("pooler", hidden_regions="official")
    states = model(batch)
    pooled, by_hand = model.heads["pooler"](states.special["cls"]), torch.zeros(())
    for b in (0, 1):
        rows = batch.chosen[b].nonzero()[:, 0]
        likeness = (states.embedded["places"][b, rows] + pooled[b]) @ states.embedded["regions"][b, rows].T
        by_hand = by_hand - likeness.log_softmax(-1).diag().mean()
    torch.testing.assert_close(objective.loss(model, states, batch), by_hand)
    assert int(objective.count(batch)) == 2


def test_answers_are_scored_softly():
    """Scores x, expected s: cost is log(1 + e^x) - s x, summed over answers, a mean over questions."""
    model, objective = toy.model("answer"), AnswerQuestion(V)
    samples = [
        replace(toy.sample(0), truth={"answer_scores": {2: 1.0, 5: 0.3}}),
        replace(toy.sample(1), truth={"answer_scores": {}}),
        toy.sample(2),
    ]
    batch = collate(objective.prepare(samples, Random(0)))
    states = model(batch)
    x = model.heads["answer"](states)
    wanted = torch.zeros(2, 7)
    wanted[0, 2], wanted[0, 5] = 1.0, 0.3
    by_hand = (torch.log1p(x[:2].exp()) - wanted * x[:2]).sum()
    torch.testing.assert_close(objective.loss(model, states, batch), by_hand)
    assert int(objective.count(batch)) == 2, "a question without a known answer is not asked"


def test_answers_compete_in_the_softmax_form():
    model, objective = toy.model("answer"), AnswerQuestion(V, form="softmax")
    truths = [{"answer_scores": {2: 0.9, 5: 0.3}}, {"answer_scores": {}}, {}]
    batch = collate([replace(toy.sample(n), truth=truth) for n, truth in enumerate(truths)])
    states = model(batch)
    logs = model.heads["answer"](states)[0].log_softmax(-1)
    torch.testing.assert_close(objective.loss(model, states, batch), -(0.75 * logs[2] + 0.25 * logs[5]))


def test_answer_head_reads_the_product_of_the_two_marks():
    head, marks = toy.model("answer").heads["answer"], {"cls": torch.randn(1, 32), "sep": torch.randn(1, 32)}
    empty = torch.zeros(1, 0, 32)
    by_hand = head.outer(torch.relu(head.inner(marks["cls"] * marks["sep"])))
    torch.testing.assert_close(head(States(empty, empty, special=marks)), by_hand)


@pytest.mark.parametrize("mask_one_word", [True, False])
def test_one_word_of_a_question_is_masked_by_the_code(mask_one_word):
    objective = AnswerQuestion(V, mask_one_word=mask_one_word, scheme=(1.0, 0.0, 0.0))
    asked = objective.prepare([toy.sample(n) for n in range(50)], Random(0))
    changed = [int((s.text != toy.sample(n).text).sum()) for n, s in enumerate(asked)]
    assert changed == [int(mask_one_word)] * 50
    assert all(s.attention == BIDIRECTIONAL and s.text_labels is None for s in asked)
    ends = sum(int(s.text[-1] == V.mask) for s in asked)
    assert (ends > 0) == mask_one_word, "the final [SEP] can be the masked one"


def test_no_region_beside_a_chosen_one_is_hidden():
    """tden.region_suppression, paper: the chosen alone, and one in ten of them stays visible."""
    regions = _three_regions()
    objective = MaskedRegionClass(rate=0.5, hidden=0.9)
    for seed in range(40):
        (sample,) = objective.prepare([_with(regions)], Random(seed))
        assert not (sample.regions.hidden & ~sample.regions.chosen).any()


def test_what_overlaps_a_chosen_region_is_hidden_too():
    """tden.region_suppression, official: IoU over 0.4, the chosen itself among them; so none stays visible."""
    regions, seen = _three_regions(), set()
    objective = MaskedRegionClass(rate=0.4, hidden=0.5, overlap=0.4)
    for seed in range(60):
        (sample,) = objective.prepare([_with(regions)], Random(seed))
        seen.add((tuple(sample.regions.chosen.tolist()), tuple(sample.regions.hidden.tolist())))
    assert ((True, False, False), (True, True, False)) in seen
    assert ((False, False, True), (False, False, True)) in seen
    assert all(hidden[place] for chosen, hidden in seen for place in range(3) if chosen[place])


def test_the_divergence_by_hand():
    """KL is cross-entropy less the entropy of what is expected: 0 where it is met."""
    model, regions = toy.model("region_class"), _three_regions()
    model.heads["region_class"] = torch.nn.Identity()
    batch = collate([_with(regions.hide(torch.tensor([True, False, False])))])
    met = batch.classes.log()
    states = States(met, torch.zeros(1, 1, 4))
    assert float(MaskedRegionClass(labels="divergence").loss(model, states, batch)) == pytest.approx(0, abs=1e-6)
    even = States(torch.zeros_like(met), torch.zeros(1, 1, 4))
    wanted = float((batch.classes[0, 0] * (batch.classes[0, 0] * toy.KINDS).log()).sum())
    assert float(MaskedRegionClass(labels="divergence").loss(model, even, batch)) == pytest.approx(wanted, rel=1e-5)


def test_two_classifiers_are_asked_apart_and_added():
    """tden.vqa_fusion, official: two binary cross-entropies."""
    asked = Sample("k", "p", None, torch.tensor([5, 3]), truth={"answer_scores": {1: 1.0}})
    batch, objective = collate([asked]), AnswerQuestion(toy.VOCABULARY)
    one, two = torch.randn(1, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 3)
    states = States(torch.zeros(1, 0, 4), torch.zeros(1, 2, 4))

    def loss(scores: torch.Tensor) -> float:
        model = toy.model("word")
        model.heads["answer"] = _Says(scores)
        return float(objective.loss(model, states, batch))

    assert loss(torch.stack([one, two], 1)) == pytest.approx(loss(one) + loss(two), rel=1e-6)
    assert loss(two) == pytest.approx(3 * float(torch.tensor(2.0).log()), rel=1e-6)


class _Says(torch.nn.Module):
    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, states: States) -> torch.Tensor:
        return self.scores


def _three_regions() -> Regions:
    """The second covers most of the first; the third is elsewhere."""
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.5], [0.1, 0.1, 0.5, 0.45], [0.6, 0.6, 0.9, 0.9]])
    return replace(toy.regions(3), boxes=boxes)


def _with(regions: Regions) -> Sample:
    return Sample("k", "p", regions, torch.tensor([5, 3]))


def test_regions_whose_labels_are_no_distribution_are_not_asked():
    """VL-BERT's code (misc.py:124): sums within 0.1 of 1."""
    sample = toy.sample(0, 4)
    sums = torch.tensor([1.0, 0.92, 0.85, 1.2])
    regions = replace(sample.regions, classes=sample.regions.classes * sums[:, None])
    objective = MaskedRegionClass(rate=1.0, labels="soft", within=0.1)
    batch = collate(objective.prepare([replace(sample, regions=regions)], Random(0)))
    assert objective.request(batch).mask.tolist() == [[True, True, False, False]]
    assert int(objective.count(batch)) == 2
    assert int(MaskedRegionClass(rate=1.0, labels="soft").count(batch)) == 4


def test_seen_classes_by_hand():
    """Of four regions one is hidden, of one nothing was told, and a second picture has two regions fewer."""
    first, second = toy.sample(1, 4), toy.sample(2, 2)
    assert first.regions is not None
    classes = torch.eye(toy.KINDS)[:4].clone()
    classes[3] = 0
    told = replace(first.regions, classes=classes).hide(
        torch.tensor([False, True, False, False]), torch.zeros(4).bool()
    )
    batch = collate([replace(first, regions=told), second])
    assert batch.classes is not None
    features = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    head = torch.nn.Linear(3, toy.KINDS)
    model = toy.model()
    model.heads["seen_class"] = head
    states = States(regions=torch.empty(2, 4, 5), text=torch.empty(2, 1, 5), embedded={"features": features})
    by_hand = torch.zeros(())
    for picture, region in ((0, 0), (0, 2), (1, 0), (1, 1)):
        right = int(batch.classes[picture, region].argmax())
        by_hand = by_hand - head(features[picture, region]).log_softmax(-1)[right]
    asked = SeenRegionClass()
    assert int(asked.count(batch)) == 4
    torch.testing.assert_close(asked.loss(model, states, batch), by_hand)
    assert int(asked.count(replace(batch, classes=None))) == 0
    assert float(asked.loss(model, states, replace(batch, classes=None)).detach()) == 0
