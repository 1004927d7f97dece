"""ImageBERT's sequence, as its paper describes it (section 4.1)."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from diptych.core import IGNORE, Batch, collate
from diptych.models.visual import geometry
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems.bert import start_from_bert
from diptych.systems.image_bert.model import ImageBert, ImageBertConfig, ImageBertResolvedConfig
from tests.support import toy

V = toy.VOCABULARY


def model(*heads: str, **changes) -> ImageBert:
    torch.manual_seed(0)
    sizes = {"width": 32, "layers": 2, "heads": 2, "ffn": 64, "positions": 16, "max_regions": 5, "feature_size": 6,
             "classes": toy.KINDS, "answers": 7, "dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2}  # fmt: skip
    return ImageBert(ImageBertResolvedConfig(vocabulary=V, **{**sizes, **changes}), heads or ("word",)).eval()


def batch_of(*counts: int, hidden: bool = False) -> Batch:
    made = [toy.sample(n, count) for n, count in enumerate(counts)]
    made = [replace(s, regions=replace(s.regions, whole=torch.rand(3) + n)) for n, s in enumerate(made)]
    if hidden:
        made = [replace(s, regions=s.regions.hide(torch.arange(len(s.regions)) == 0)) for s in made]
    return collate(made)


def entered(one: ImageBert, batch: Batch) -> torch.Tensor:
    """What enters the first layer: regions, then [CLS] and words."""
    one.keep_layers = True
    return one(batch).layers[0]


def test_classes_of_regions_are_told_by_one_layer():
    """Section 4.3, Task 2: "we add a fully-connected layer"."""
    head = model("region_class").heads["region_class"]
    assert isinstance(head, torch.nn.Linear)
    assert head.weight.shape == (toy.KINDS, 32)


def test_words_are_bert_s_and_regions_the_formula_s():
    one, batch = model(), batch_of(2)
    found = entered(one, batch)[0]
    text, seen, words = one.text, one.regions, [V.cls, *batch.text[0].tolist()]
    for place, word in enumerate(words):
        total = text.words.weight[word] + text.positions.weight[place] + text.segments.weight[0]
        torch.testing.assert_close(found[2 + place], F.layer_norm(total, (32,), eps=1e-12), atol=1e-5, rtol=1e-5)
    for region in range(2):
        x1, y1, x2, y2 = batch.boxes[0, region]
        box = torch.stack([x1, y1, x2, y2, (x2 - x1) * (y2 - y1)])
        look = seen.feature(batch.features[0, region])
        total = look + seen.place(box) + text.segments.weight[1] + text.positions.weight[15]  # the dummy position
        torch.testing.assert_close(found[region], F.layer_norm(total, (32,), eps=1e-12), atol=1e-5, rtol=1e-5)


def test_each_projection_may_be_normed_too():
    one, batch = model(region_norm="each"), batch_of(1)
    seen = one.regions
    torch.nn.init.normal_(seen.feature_norm.weight)
    look = seen.feature_norm(seen.feature(batch.features[0, 0]))
    place = seen.place_norm(seen.place(geometry(batch, "paper", "paper")[0, 0]))
    total = look + place + one.text.segments.weight[1] + one.text.positions.weight[15]
    torch.testing.assert_close(entered(one, batch)[0, 0], seen.norm(total))
    assert not hasattr(model().regions, "feature_norm")


def test_all_hear_of_all():
    one, batch = model(layers=1, whole_region=True, whole_size=3), batch_of(2)
    one.keep_layers, inputs = True, []
    encoder = one.encoder.forward
    one.encoder.forward = lambda x, allowed: encoder(inputs.append(x.detach().requires_grad_()) or inputs[0], allowed)
    rows = []
    for row in one(batch).layers[1][0]:
        (moved,) = torch.autograd.grad((row**2).sum() + row.sum(), inputs[0], retain_graph=True)
        rows.append("".join("#" if column.abs().sum() > 0 else "." for column in moved[0]))
    assert rows == ["#" * 8] * 8  # r1 r2 [whole] | [CLS] w1 w2 w3 [SEP]


def test_a_hidden_region_keeps_its_box_alone():
    one, seen, hidden = model(), batch_of(2), batch_of(2, hidden=True)
    other = replace(hidden, features=hidden.features + torch.tensor([5.0, 0.0])[:, None])  # of the hidden one alone
    torch.testing.assert_close(one(hidden).text, one(other).text)
    assert not torch.allclose(one(seen).text, one(hidden).text)
    moved = replace(hidden, boxes=hidden.boxes * torch.tensor([0.5, 1.0])[:, None])
    assert not torch.allclose(one(hidden).text, one(moved).text)


@pytest.mark.parametrize("whole", [False, True])
def test_absent_regions_and_words_change_nothing(whole):
    one = model(whole_region=whole, whole_size=3)
    batch = batch_of(2, 5)
    alone, together = one(replace_first(batch)), one(batch)
    length = alone.text.shape[1]
    torch.testing.assert_close(alone.text[0], together.text[0, :length], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone.regions[0], together.regions[0, :2], atol=1e-5, rtol=1e-5)
    for mark in ("cls", "sep"):
        torch.testing.assert_close(alone.special[mark][0], together.special[mark][0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together.special["sep"][0], together.text[0, length - 1])


def replace_first(batch: Batch) -> Batch:
    """The first picture alone, without the padding."""
    words, regions = int(batch.text_present[0].sum()), int(batch.regions_present[0].sum())
    cut = {name: getattr(batch, name)[:1, :words] for name in ("text", "text_present", "text_labels")}
    cut |= {
        name: getattr(batch, name)[:1, :regions]
        for name in ("boxes", "scores", "regions_present", "chosen", "hidden", "classes", "features")
    }
    cut |= {name: getattr(batch, name)[:1] for name in ("sizes", "whole", "matched", "keys", "pictures", "attention")}
    return replace(batch, **cut)


def test_a_text_without_pictures_and_a_picture_without_text():
    one, made = model(), toy.sample(0, 2)
    alone = one(collate([replace(made, regions=None)]))
    assert alone.regions.shape == (1, 0, 32)
    assert one(collate([replace(made, text=made.text[:0])])).text.shape == (1, 0, 32)


def test_the_whole_picture_is_one_region_more_of_its_own_size():
    one, batch = model(whole_region=True, whole_size=3), batch_of(2)
    states = one(batch)
    assert states.regions.shape[1] == 2
    assert not torch.allclose(states.text, one(replace(batch, whole=batch.whole + 1)).text)
    with pytest.raises(DataError, match="needs a feature of the whole image; extract with --image-feature"):
        one(replace(batch, whole=None))
    with pytest.raises(DataError, match="feature of the whole image has 2 values, expected 3"):
        one(replace(batch, whole=batch.whole[:, :2]))


def test_what_is_too_long_is_refused():
    with pytest.raises(DataError, match="6 regions, but the model reads at most 5"):
        model()(batch_of(2, 6))
    long = replace(toy.sample(0, 1), text=torch.full((15,), 7), text_labels=torch.full((15,), IGNORE))
    with pytest.raises(DataError, match="a text has 15 words, but the model has positions for 14"):
        model()(collate([long]))
    with pytest.raises(ValueError, match="is too small for words"):
        ImageBertConfig(positions=3)
    with pytest.raises(ValueError, match="is not divisible"):
        ImageBertConfig(width=130)


def test_the_paper_s_sizes():
    """Section 5.1: 12 layers, 768, 3072, 12 heads, dropout 0.1, 100 regions."""
    shape = ImageBertConfig.base()
    assert (shape.layers, shape.width, shape.ffn, shape.heads) == (12, 768, 3072, 12)
    assert (shape.dropout, shape.max_regions, shape.region_norm, shape.whole_region) == (0.1, 100, "sum", False)
    assert shape.max_text >= 43
    assert ImageBertConfig(whole_region="given").fitted(False).whole_region is False
    assert ImageBertConfig(whole_region="given").fitted(True).whole_region is True
    with pytest.raises(RecipeError, match=r"the store lacks.*--image-feature densenet121"):
        ImageBertConfig(whole_region=True).fitted(False)


def test_it_begins_from_bert(tmp_path):
    one = model("word", "match")
    bert = {"bert.embeddings.word_embeddings.weight": torch.rand(20, 32)}
    bert |= {"bert.embeddings.position_embeddings.weight": torch.rand(16, 32),
             "bert.embeddings.token_type_embeddings.weight": torch.rand(2, 32),
             "bert.embeddings.LayerNorm.weight": torch.rand(32),
             "bert.embeddings.LayerNorm.bias": torch.rand(32)}  # fmt: skip
    torch.save(bert, tmp_path / "bert.bin")
    report = start_from_bert(one, tmp_path / "bert.bin")
    assert torch.equal(one.text.words.weight, bert["bert.embeddings.word_embeddings.weight"])
    assert torch.equal(one.text.segments.weight, bert["bert.embeddings.token_type_embeddings.weight"])
    assert {"regions.feature.weight", "heads.match.out.weight"} <= set(report.missing)
    torch.save({"vlbert.mlm_head.weight": torch.rand(2)}, tmp_path / "other.bin")
    with pytest.raises(CheckpointError, match="is a VL-BERT checkpoint"):
        start_from_bert(one, tmp_path / "other.bin")
