"""VL-BERT: what its sequence is, and what a hidden region tells nobody."""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
import torch

from diptych.core import BIDIRECTIONAL, Batch, Sample, collate
from diptych.runtime.errors import DataError
from diptych.systems import find_recipe
from diptych.systems.vl_bert.model import VLBert, VLBertConfig, VLBertResolvedConfig
from diptych.systems.vl_bert.objectives import VLBertObjectives
from diptych.testing.checks import costs, rows_cut, uncut
from tests.support import toy

SEP = toy.VOCABULARY.sep
OFFICIAL = find_recipe("vl-bert/official/pretrain").objectives


def model(*heads: str, **changes: Any) -> VLBert:
    sizes = {"width": 32, "layers": 2, "heads": 2, "ffn": 64, "positions": 80, "coordinates": 4, "feature_size": 6}
    torch.manual_seed(0)
    config = VLBertResolvedConfig(
        vocabulary=toy.VOCABULARY, **{**sizes, "classes": toy.KINDS, "answers": 7, "init_std": 0.2, **changes}
    )
    return VLBert(config, heads or ("word",)).eval()


def batch(*counts: int, **changes: Any) -> Batch:
    samples = [toy.sample(seed, count) for seed, count in enumerate(counts)]
    return collate([replace(s, attention=BIDIRECTIONAL, **changes) for s in samples])


def test_padding_changes_nothing() -> None:
    """Alone and beside a longer one: the sequence of the authors has no gaps, ours has absent places."""
    vlbert = model()
    alone, beside = vlbert(batch(2)), vlbert(batch(2, 5))
    torch.testing.assert_close(alone.regions[0], beside.regions[0, :2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone.text[0], beside.text[0, : alone.text.shape[1]], atol=1e-5, rtol=1e-5)
    for mark, states in alone.special.items():
        torch.testing.assert_close(states[0], beside.special[mark][0], atol=1e-5, rtol=1e-5)


def test_a_hidden_region_reaches_nothing() -> None:
    """Neither itself nor through the whole picture, whose feature is the mean of those that are seen."""
    vlbert, sample = model(), toy.sample(0, 3)
    assert sample.regions is not None
    assert sample.regions.features is not None
    hidden = torch.tensor([False, True, False])
    other = sample.regions.features.clone()
    other[1] += 5.0

    def states(features: torch.Tensor) -> torch.Tensor:
        regions = replace(sample.regions, features=features).hide(hidden)
        return vlbert(collate([replace(sample, regions=regions, attention=BIDIRECTIONAL)])).text

    assert torch.equal(states(sample.regions.features), states(other))


def test_all_regions_share_a_place() -> None:
    vlbert = model(whole="mean")
    seen = batch(4)
    order = torch.tensor([2, 0, 3, 1])
    shuffled = replace(
        seen,
        boxes=seen.boxes[:, order],
        features=None if seen.features is None else seen.features[:, order],
        classes=None if seen.classes is None else seen.classes[:, order],
    )
    torch.testing.assert_close(vlbert(seen).regions[:, order], vlbert(shuffled).regions, atol=1e-5, rtol=1e-5)


def test_a_word_looks_at_the_region_it_names() -> None:
    vlbert, sample = model(), toy.sample(1, 3)
    named = torch.full_like(sample.text, -1)
    plain = vlbert(collate([replace(sample, text_regions=named, attention=BIDIRECTIONAL)]))
    without = vlbert(collate([replace(sample, attention=BIDIRECTIONAL)]))
    assert torch.equal(plain.text, without.text)  # -1 is the whole picture
    named[0] = 2
    pointing = vlbert(collate([replace(sample, text_regions=named, attention=BIDIRECTIONAL)]))
    assert not torch.allclose(plain.text, pointing.text)


def test_the_second_sentence_has_a_segment_of_its_own() -> None:
    vlbert = model()
    sample = Sample("a", "p", toy.regions(2), torch.tensor([7, SEP, 8, SEP]), attention=BIDIRECTIONAL)
    before = vlbert(collate([sample]))
    with torch.no_grad():
        vlbert.text.segments.weight[1] += 1.0
    assert not torch.allclose(before.text, vlbert(collate([sample])).text)
    one = replace(sample, text=torch.tensor([7, 8, 9, SEP]))
    after = vlbert(collate([one]))
    with torch.no_grad():
        vlbert.text.segments.weight[1] -= 1.0
    assert torch.equal(after.text, vlbert(collate([one])).text)  # one sentence knows no segment B


def test_text_alone_knows_nothing_of_its_neighbours() -> None:
    vlbert = model()
    text = Sample("t", "t", None, torch.tensor([7, 8, 9]), attention=BIDIRECTIONAL)
    pair = replace(toy.sample(3, 4), attention=BIDIRECTIONAL)
    alone, beside = vlbert(collate([text])), vlbert(collate([text, pair]))
    torch.testing.assert_close(alone.text[0], beside.text[0, :3], atol=1e-5, rtol=1e-5)


def test_a_feature_of_another_size_of_the_whole_image_is_projected() -> None:
    samples = [toy.sample(number, 3) for number in range(2)]
    wide = [replace(one, regions=replace(one.regions, whole=torch.rand(99))) for one in samples if one.regions]
    vlbert = model(whole="given", whole_size=99)
    read = collate([replace(one, attention=BIDIRECTIONAL) for one in wide])
    assert read.whole is not None
    assert not torch.allclose(vlbert(read).text, vlbert(replace(read, whole=read.whole + 1)).text)
    assert "regions.whole.weight" not in model(whole="given", whole_size=6).state_dict()
    with pytest.raises(DataError, match=r"has 7 values, expected 99; extract it again"):
        vlbert(replace(read, whole=read.whole[:, :7]))


def test_text_and_regions_share_64_places_in_the_code() -> None:
    regions = toy.regions(70)
    words = torch.tensor([*range(5, 15), SEP])
    sample = Sample("a", "p", regions, words, attention=BIDIRECTIONAL)
    vlbert = model(region_budget="official", whole="given")
    best = replace(sample, regions=replace(regions.first(64 - 2 - len(words)), whole=torch.ones(6)))
    whole = replace(sample, regions=replace(regions, whole=torch.ones(6)))
    torch.testing.assert_close(
        vlbert(collate([whole])).text, vlbert(collate([best])).text, atol=1e-5, rtol=1e-5
    )  # of 70 regions the best 51 are read
    everything = model(region_budget="paper", whole="given")
    assert not torch.allclose(everything(collate([whole])).text, everything(collate([best])).text)
    mean = model(region_budget="official")  # of what is read alone
    torch.testing.assert_close(mean(collate([sample])).text, mean(collate([best])).text, atol=1e-5, rtol=1e-5)
    alone = Sample("t", "t", None, torch.tensor([5] * 60), attention=BIDIRECTIONAL)
    assert mean(collate([sample, alone])).text.isfinite().all()  # no regions, no budget
    long = replace(whole, text=torch.tensor([5] * 40))
    shape = VLBertConfig.tiny(region_budget="official", max_regions=100)
    assert [shape.most_regions(words) for words in (10, 32, 40, 90)] == [52, 30, 30, 30]  # of more the model tells
    assert (shape.max_beside, shape.max_text) == (32, 93)
    with pytest.raises(DataError, match=r"a text has 40 words.*region_budget=official has 64 positions"):
        vlbert(collate([long]))


def test_the_visual_norms_begin_at_nothing_in_the_code() -> None:
    """So that training begins as a plain BERT: no look reaches a state."""
    vlbert = model(visual_norm_init="official")
    seen = batch(3)
    assert seen.features is not None
    blind = replace(seen, features=torch.zeros_like(seen.features))
    assert torch.equal(vlbert(seen).text, vlbert(blind).text)
    sighted = model(visual_norm_init="paper")
    assert not torch.allclose(sighted(seen).text, sighted(blind).text)


def test_geometry_is_corners_or_centre_and_size() -> None:
    seen = batch(1)
    assert seen.boxes.shape[1] == 1
    x1, y1, x2, y2 = (100 * seen.boxes[0, 0]).tolist()
    corners = model(geometry="paper").regions._places(seen)[0, 1]
    torch.testing.assert_close(corners, torch.tensor([x1, y1, x2, y2]))
    centre = model(geometry="official").regions._places(seen)[0]
    torch.testing.assert_close(centre[1], torch.tensor([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]))
    torch.testing.assert_close(centre[0], torch.tensor([49.5, 100 * 39.5 / 80, 99.0, 100 * 79 / 80]))  # 100 x 80


def hiding(vlbert: VLBert, **changed: Any) -> torch.Tensor:
    """What the model makes of a region that is hidden."""
    sample = toy.sample(0, 3)
    assert sample.regions is not None
    regions = replace(sample.regions, **changed).hide(torch.tensor([False, True, False]))
    return vlbert(collate([replace(sample, regions=regions, attention=BIDIRECTIONAL)])).regions[0, 1]


def test_a_hidden_region_is_one_learnt_vector_or_keeps_its_place() -> None:
    """v1, Task 3: its visual feature embedding, of which its geometry is a part, is replaced."""
    boxes = toy.regions(3).boxes.clone()
    boxes[1] = torch.tensor([0.1, 0.7, 0.3, 0.9])
    paper, official = model(hidden_regions="paper"), model(hidden_regions="official")
    assert torch.equal(hiding(paper), hiding(paper, boxes=boxes))
    assert not torch.allclose(hiding(official), hiding(official, boxes=boxes))
    before = hiding(paper)
    with torch.no_grad():
        paper.hidden.weight[0, 0] += 1.0
    assert not torch.allclose(hiding(paper), before), "it is learnt"
    assert set(official.state_dict()) - set(paper.state_dict()) == {"regions.hidden"}


def test_the_end_sees_the_whole_picture_or_nothing() -> None:
    """v1: "For the non-visual elements", [END] among them, "features extracted on the whole input image"."""

    def entered(form: str, feature: float) -> torch.Tensor:
        vlbert, seen = model(end_visual=form, whole="given"), batch(2)
        vlbert.keep_layers = True
        seen = replace(seen, whole=torch.full((1, 6), feature))
        return vlbert(seen).layers[0][0, 3]  # r0, two regions, [END]

    assert not torch.allclose(entered("paper", 0.0), entered("paper", 1.0))
    assert torch.equal(entered("official", 0.0), entered("official", 1.0))


@pytest.mark.learns
def test_pretraining_learns_eight_samples() -> None:
    objectives = VLBertObjectives(relation=1.0, region_labels="soft", rate=0.3)
    schedule = objectives.schedule(toy.VOCABULARY)
    vlbert = model(*schedule.heads, dropout=0.0, attention_dropout=0.0, init_std=0.1).train()
    samples, update = [toy.sample(seed) for seed in range(8)], schedule.at(0)
    optimizer = torch.optim.Adam(vlbert.parameters(), lr=3e-3, fused=True)

    def mean_loss(step: int) -> torch.Tensor:
        seen = collate(update.prepare(samples, Random(step % 4)))
        losses, counts = next(iter(update.losses(vlbert, seen))), update.counts(seen)
        return sum((losses[name] / counts[name].clamp(min=1) for name in losses), torch.zeros(()))

    first = float(mean_loss(0).detach())
    for step in range(120):
        optimizer.zero_grad()
        mean_loss(step).backward()
        optimizer.step()
    # Soft labels leave their entropy, 0.36 nats a region; the rest is learnt.
    assert float(mean_loss(0).detach()) < 0.36 + 0.15 * first


def test_relation_is_of_v1_and_off_in_the_code() -> None:
    both = VLBertObjectives().schedule(toy.VOCABULARY)
    assert both.heads == {"match", "word", "region_class"}
    assert VLBertObjectives(relation=0.0).schedule(toy.VOCABULARY).heads == {"word", "region_class"}


def test_v1_always_masks_and_the_code_does_not() -> None:
    samples = [toy.sample(seed) for seed in range(200)]

    def changed_to(masking: str) -> set[str]:
        objectives = VLBertObjectives(relation=0.0, region_classes=0.0, masking=masking, rate=0.5)
        (words,) = objectives.schedule(toy.VOCABULARY).objectives
        found = set()
        for before, after in zip(samples, words.prepare(samples, Random(0)), strict=True):
            assert after.text_labels is not None
            assert after.text_labels[-1] == -1  # [SEP] is never asked
            for old, new, label in zip(before.text, after.text, after.text_labels, strict=True):
                if label >= 0:
                    kind = "mask" if new == toy.VOCABULARY.mask else "kept" if new == old else "random"
                    found.add(kind)
        return found

    hidden = [objectives.region_hidden for objectives in (VLBertObjectives(), OFFICIAL)]
    assert hidden == [1.0, 0.9], "v1 masks each region that it chooses"
    assert changed_to("paper") == {"mask"}
    assert changed_to("official") == {"mask", "kept", "random"}


def test_text_beside_pairs_is_asked_by_itself_in_the_code() -> None:
    """mlm_wvc and mlm_aux: each a mean of its own (multitask.py:288)."""
    assert VLBertObjectives().schedule(toy.VOCABULARY).objectives[1].name == "masked_language"
    schedule = VLBertObjectives(relation=0.0, text_alone=1.0, rate=0.9).schedule(toy.VOCABULARY)
    update = schedule.at(0)
    assert [o.name for o in update.objectives] == ["masked_language", "masked_text", "masked_region_class"]
    alone = Sample("t", "t", None, torch.tensor([7, 8, 9]))
    seen = collate(update.prepare([toy.sample(0), alone], Random(0)))
    counts = update.counts(seen)
    asked = (seen.text_labels >= 0).sum(1).tolist()
    assert [int(counts[name]) for name in ("masked_language", "masked_text")] == asked
    losses = next(iter(update.losses(model("word", "region_class"), seen)))
    assert float(losses["masked_text"].detach()) > 0


def test_text_alone_costs_its_own_length() -> None:
    """A text of the corpus beside pairs: no layer is run for places of regions that it has not, no feature is read,
    and losses and gradients are those of a batch that is padded."""
    schedule = VLBertObjectives(relation=0.0, text_alone=1.0, rate=0.5, region_rate=0.5).schedule(toy.VOCABULARY)
    update = schedule.at(0)
    alone = [Sample(f"t{n}", f"t{n}", None, torch.randint(5, 19, (12,))) for n in range(3)]
    pairs = [toy.sample(seed, 5) for seed in range(3)]
    seen = collate(update.prepare([*pairs, *alone], Random(0)))
    vlbert = model("word", "region_class", dropout=0.0, attention_dropout=0.0)
    run = partial(costs, vlbert, update, seen)
    wanted = uncut(run)
    rows = {"encoder.layers.0.inner": 0, "regions.out": 0}
    for name in rows:

        def count(_module: object, inputs: tuple[torch.Tensor, ...], name: str = name) -> None:
            rows[name] += inputs[0].shape[:-1].numel()

        vlbert.get_submodule(name).register_forward_pre_hook(count)
    assert rows_cut(vlbert, run, wanted) > 0
    of_pairs = sum(len(sample.text) + 5 + 3 for sample in pairs)  # [CLS], the whole picture, [END]
    of_texts = sum(len(sample.text) + 1 for sample in alone)  # [END]
    assert rows == {"encoder.layers.0.inner": of_pairs + of_texts, "regions.out": 3 * 6}
