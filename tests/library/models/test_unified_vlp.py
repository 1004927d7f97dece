from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, QUERIES_BEFORE, TARGET_AFTER_BOTH, TEXT_AFTER_REGIONS, Attention, Batch, collate
from diptych.models.visual import geometry, place_input, with_image_feature
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPConfig
from tests.support import toy


def batch_of(*counts: int, attention: Attention = BIDIRECTIONAL, queries: bool = False) -> Batch:
    samples = [replace(toy.sample(n, count), attention=attention) for n, count in enumerate(counts)]
    if queries:
        samples = [replace(s, target=torch.full_like(s.text, toy.VOCABULARY.mask)) for s in samples]
    return collate(samples)


def influence(model: UnifiedVLP, batch: Batch) -> str:
    """Who hears of whom, through one layer: row i has # under j where the state of i moves when j's input does."""
    model.keep_layers = True
    inputs = []
    model.text.finish = lambda total: inputs.append(total.detach().requires_grad_()) or inputs[-1]
    states = model(batch).layers[1][0]
    rows = []
    for row in states:
        (moved,) = torch.autograd.grad(row.sum() + (row**2).sum(), inputs[0], retain_graph=True)
        rows.append("".join("#" if column.abs().sum() > 0 else "." for column in moved[0]))
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("attention", "grid"),
    [
        # [CLS] r1 r2 [SEP] | w1 w2 w3 [STOP]
        (BIDIRECTIONAL, "########\n" * 8),
        (
            TEXT_AFTER_REGIONS,
            "####....\n####....\n####....\n####....\n#####...\n######..\n#######.\n########\n",
        ),
    ],
)
def test_who_hears_of_whom(attention, grid):
    assert influence(toy.model(layers=1), batch_of(2, attention=attention)) == grid.strip()


def test_queries_hear_of_regions_earlier_words_and_themselves():
    batch = batch_of(1, attention=QUERIES_BEFORE, queries=True)  # [CLS] r1 [SEP] | w1 w2 [STOP] | q1 q2 q3
    assert influence(toy.model(layers=1), batch).splitlines() == [
        "###......",
        "###......",
        "###......",
        "####.....",
        "#####....",
        "######...",
        "###...#..",
        "####...#.",
        "#####...#",
    ]


def test_absent_regions_and_words_change_nothing():
    model, alone, longer = toy.model("word"), batch_of(2), batch_of(2, 5)
    for attention in (BIDIRECTIONAL, TEXT_AFTER_REGIONS):
        for batch in (alone, longer):
            batch.attention = [attention] * len(batch)
        ours, theirs = model(alone), model(longer)
        torch.testing.assert_close(ours.text[0], theirs.text[0, : ours.text.shape[1]])
        torch.testing.assert_close(ours.regions[0], theirs.regions[0, :2])
        torch.testing.assert_close(ours.special["sep"][0], theirs.special["sep"][0])


@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_text_begins_at_one_place_whatever_the_regions(count):
    """[CLS] 0, [SEP] max_regions + 1, words from max_regions + 2, and queries at the places of their words."""
    model, asked = toy.model(), []
    model.text.positions.register_forward_hook(lambda module, given, result: asked.append(given[0].tolist()))
    model(batch_of(count, attention=QUERIES_BEFORE, queries=True))
    words = list(range(7, 7 + count + 2))
    assert asked == [[0, 6], words, words]


def test_a_fragment_stands_at_its_own_places():
    """Its padding may run over the last place, and nothing else may."""
    model, asked = toy.model(positions=15), []  # places 7 to 14
    model.text.positions.register_forward_hook(lambda module, given, result: asked.append(given[0].tolist()))
    whole = [replace(toy.sample(n, 3), attention=TARGET_AFTER_BOTH) for n in range(2)]
    fragments = [(1, torch.tensor([2, 7, 8, 9])), (5, torch.tensor([2, 7]))]
    model(collate([replace(s, target=t, target_start=at) for s, (at, t) in zip(whole, fragments, strict=True)]))
    assert asked[-1] == [[8, 9, 10, 11], [12, 13, 14, 14]]


@pytest.mark.parametrize(
    ("segments", "attention", "pair"),
    [
        (6, TEXT_AFTER_REGIONS, [4, 5]),
        (6, QUERIES_BEFORE, [4, 5]),
        (6, BIDIRECTIONAL, [0, 1]),
        (2, TEXT_AFTER_REGIONS, [0, 1]),
        (2, BIDIRECTIONAL, [0, 1]),
    ],
)
def test_segments_follow_from_the_attention(segments, attention, pair):
    model, asked = toy.model(segments=segments), []
    model.text.segments.register_forward_hook(lambda module, given, result: asked.append(given[0][0].tolist()))
    model(batch_of(3, attention=attention))
    regions, marks, words = asked
    assert (regions, marks, words) == ([pair[0]], [pair[0]] * 2, [pair[1]] * 5)


def test_samples_of_one_batch_are_read_in_their_own_ways():
    model = toy.model()
    mixed = batch_of(3, 3)
    mixed.attention = [TEXT_AFTER_REGIONS, BIDIRECTIONAL]
    for row, attention in enumerate(mixed.attention):
        alone = collate([replace(toy.sample(row, 3), attention=attention)])
        torch.testing.assert_close(model(mixed).text[row], model(alone).text[0])


def test_a_text_without_a_picture_is_read():
    model, batch = toy.model(), collate([replace(toy.sample(1), regions=None)])
    states = model(batch)
    assert states.regions.shape == (1, 0, 32)
    assert states.text.isfinite().all()


def one_box(size: tuple[int, int] = (200, 100)) -> Batch:
    found = replace(toy.regions(2), boxes=torch.tensor([[0.1, 0.2, 0.5, 0.6], [0.0, 0.0, 0.8, 0.9]]), size=size)
    return collate([replace(toy.sample(0), regions=replace(found, scores=torch.tensor([0.7, 0.3])))])


def test_geometry_of_the_paper_and_of_the_code():
    batch = one_box()
    paper = geometry(batch, "paper", "paper")
    torch.testing.assert_close(paper[0, 0], torch.tensor([0.1, 0.2, 0.5, 0.6, 0.16]))
    # The largest x is 0.8 * 200 = 160 pixels, the largest y 0.9 * 100 = 90.
    code = geometry(batch, "official", "official")
    x1, y1, x2, y2 = 20 / 160, 20 / 90, 100 / 160, 60 / 90
    torch.testing.assert_close(code[0, 0], torch.tensor([x1, y1, x2, y2, (x2 - x1) * (y2 - y1), 0.7]))
    assert geometry(batch, "official", "paper").shape[-1] == 5
    torch.testing.assert_close(geometry(batch, "paper", "official")[0, :, 5], torch.tensor([0.7, 0.3]))


def test_absent_boxes_do_not_stretch_the_picture():
    two, one = one_box(), one_box()
    two.regions_present[0, 1] = one.regions_present[0, 1] = False
    one.boxes[0, 1] = 0
    torch.testing.assert_close(geometry(two, "official", "paper")[0, 0], geometry(one, "official", "paper")[0, 0])


def test_place_input_normalises_geometry_and_classes_apart():
    batch = one_box()
    both = place_input(batch, "paper", "official", batch.classes)
    numbers = geometry(batch, "paper", "official")
    wanted = (numbers - numbers.mean(-1, keepdim=True)) / (numbers.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(both[..., :6], wanted)
    assert both.shape[-1] == 6 + toy.KINDS
    assert both[..., 6:].mean(-1).abs().max() < 1e-5


def test_region_embedding_of_the_paper():
    """Eq. 1: W_r R + W_p [norm(W_c C) | norm(W_g G)], with ReLU where the paper omits a nonlinearity."""
    model, batch = toy.model(), one_box()
    part = model.regions
    looks, places = part(batch, torch.zeros_like(batch.hidden))
    feature, box = batch.features[0, 0], geometry(batch, "paper", "paper")[0, 0]
    look = F.relu(part.feature[0].weight @ feature + part.feature[0].bias)
    of_class = F.layer_norm(part.kind[0].weight @ batch.classes[0, 0] + part.kind[0].bias, (32,))
    of_box = F.layer_norm(part.box[0].weight @ box + part.box[0].bias, (32,))
    place = F.relu(part.place[0].weight @ torch.cat([of_class, of_box]) + part.place[0].bias)
    torch.testing.assert_close(looks[0, 0], look)
    torch.testing.assert_close(places[0, 0], place)


def test_a_feature_may_pass_the_detectors_last_layer_first():
    """Appendix: "the output of the fc6 layer as the feature representation, and fine-tune the fc7 layer"."""
    plain, deeper, batch = toy.model().regions, toy.model(fc7=True).regions, one_box()
    first = {"feature.0.weight": 2 * torch.eye(6), "feature.0.bias": torch.zeros(6)}
    later = {name.replace("feature.0", "feature.2"): value for name, value in plain.state_dict().items()}
    deeper.load_state_dict({**later, **first})
    twice = replace(batch, features=2 * batch.features)  # none is negative
    assert (batch.features >= 0).all()
    for ours, wanted in zip(deeper(batch, batch.hidden), plain(twice, batch.hidden), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_region_embedding_of_the_code_has_two_layers_and_one():
    official = toy.model(region_embedding="official", geometry="official").regions
    assert [m.weight.shape for m in official.feature if hasattr(m, "weight")] == [(6, 6), (32, 6)]
    assert official.place[0].weight.shape == (32, 6 + toy.KINDS)


@pytest.mark.parametrize("form", ["paper", "official"])
@pytest.mark.parametrize("class_input", [True, False])
def test_class_probabilities_as_input(form, class_input):
    """Table 6: with them, another class is another embedding; without, the classes are not even looked at."""
    model, batch = toy.model(region_embedding=form, class_input=class_input), batch_of(3)
    other = replace(batch, classes=batch.classes.roll(1, -1))
    assert torch.equal(model(batch).text, model(other).text) != class_input
    if not class_input:
        model(replace(batch, classes=None))


def test_the_whole_picture_as_one_region_more():
    """Equal to a batch that holds it as a region; the states of the regions are theirs alone."""
    samples = [toy.sample(number) for number in range(3)]
    batch = collate([replace(s, regions=replace(s.regions, whole=s.regions.features[0])) for s in samples])
    one = toy.model(whole_region=True).eval()
    by_hand = with_image_feature(batch, None)
    assert by_hand.boxes[0, -1].tolist() == [0, 0, 1, 1]
    assert by_hand.features[:, -1].equal(batch.whole)
    assert by_hand.regions_present[:, -1].all()
    plain = toy.model().eval()
    plain.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(batch).text, plain(by_hand).text)
    assert one(batch).regions.shape[1] == batch.boxes.shape[1]
    with pytest.raises(DataError, match="feature of the whole image"):
        one(collate([toy.sample(0)]))
    wide = [replace(sample, regions=replace(sample.regions, whole=torch.ones(99))) for sample in samples]
    with pytest.raises(DataError, match=r"feature of the whole image has 99 values, expected \d+; extract it again"):
        one(collate(wide))


def test_a_feature_of_another_size_of_the_whole_image_is_projected():
    samples = [toy.sample(number) for number in range(2)]
    wide = collate([replace(one, regions=replace(one.regions, whole=torch.rand(99))) for one in samples])
    model = toy.model(whole_region=True, whole_size=99).eval()
    assert model.whole.in_features == 99
    other = model(replace(wide, whole=wide.whole + 1))
    assert not torch.allclose(model(wide).text, other.text)
    assert "whole.weight" not in toy.model(whole_region=True).state_dict()
    with pytest.raises(DataError, match=r"has 7 values, expected 99; extract it again"):
        model(replace(wide, whole=wide.whole[:, :7]))


@pytest.mark.parametrize("form", ["paper", "official"])
def test_hidden_regions(form):
    """Hidden: feature and class do not matter. The box does with the paper's switch, and not with the code's."""
    model, batch = toy.model(hidden_regions=form), batch_of(3)
    batch.hidden[0, 1] = True
    was = model(batch).text

    def changed(**fields: torch.Tensor) -> bool:
        return not torch.allclose(model(replace(batch, **fields)).text, was, atol=1e-6)

    other = {name: getattr(batch, name).clone() for name in ("features", "classes", "boxes")}
    other["features"][0, 1] += 1
    other["classes"][0, 1] = other["classes"][0, 1].roll(1)
    other["boxes"][0, 1] *= 0.5
    assert not changed(features=other["features"])
    assert not changed(classes=other["classes"])
    assert changed(boxes=other["boxes"]) == (form == "paper")
    batch.hidden[0, 1] = False
    was = model(batch).text
    assert changed(features=other["features"])
    assert changed(classes=other["classes"])
    assert changed(boxes=other["boxes"])


def test_what_cannot_be_read_is_refused_with_a_way_out():
    model = toy.model()
    with pytest.raises(DataError, match="6 regions, but the model reads at most 5; extract fewer regions,"):
        model(batch_of(6))
    with pytest.raises(DataError, match=r"text has 18 words, but the model has positions for 17"):
        model(collate([replace(toy.sample(1), text=torch.zeros(18, dtype=torch.long))]))
    with pytest.raises(DataError, match="the image has no region features"):
        model(replace(batch_of(2), features=None))
    with pytest.raises(DataError, match="region features have 5 values, the model needs 6"):
        model(replace(batch_of(2), features=torch.zeros(1, 2, 5)))
    with pytest.raises(RecipeError, match=r"the captions need 18 words, but .* leaves room for 17"):
        model.begin(batch_of(2), 18)


def test_config_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="width 32 is not divisible by 5 heads"):
        toy.config(heads=5)
    with pytest.raises(ValueError, match="leaves no position for words after 5 regions"):
        toy.config(positions=7)
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        toy.config(colour="red")
    assert UnifiedVLPConfig.base().layers == 12


def test_heads_are_made_by_name():
    assert set(toy.model("word", "answer", "region_class", "pooler").heads) == {
        "word",
        "answer",
        "region_class",
        "pooler",
    }
    with pytest.raises(RecipeError, match="no head has the name 'words'; did you mean word"):
        toy.model("words")
    with pytest.raises(RecipeError, match=r"that predicts answers was requested, .* answers=0"):
        toy.model("answer", answers=0)


def test_word_head_shares_the_embeddings_once():
    model = toy.model()
    assert not [name for name in model.state_dict() if "tied" in name or "decoder" in name]
    before = model.heads["word"](torch.ones(1, 32))
    with torch.no_grad():
        model.text.words.weight += 1
    assert not torch.equal(before, model.heads["word"](torch.ones(1, 32)))


def test_copies_do_not_share_their_words():
    from copy import deepcopy

    model = toy.model()
    copied = deepcopy(model)
    with torch.no_grad():
        model.text.words.weight.zero_()
    assert copied.heads["word"](torch.ones(1, 32)).abs().sum() > 0
    assert copied.heads["word"].tied[0] is copied.text.words


@torch.no_grad()
def test_fresh_weights_are_berts():
    model = toy.model(std=0.02)
    assert float(model.text.words.weight.std()) == pytest.approx(0.02, rel=0.1)
    assert float(model.encoder.layers[0].inner.weight.std()) == pytest.approx(0.02, rel=0.1)
    assert not model.encoder.layers[0].inner.bias.any()
