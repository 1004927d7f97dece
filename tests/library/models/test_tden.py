"""TDEN's switches and structures: who may look at whom, and what stands where."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor

from diptych.core import Batch, Writer, collate
from diptych.objectives import GenerateText
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems.tden.layers import closed_over
from diptych.systems.tden.model import TdenConfig
from tests.support import toy

STRUCTURES = ("decoupled", "two-stream", "single-stream")


def batch_of(*seeds: int, source: str = "words") -> Batch:
    samples = [toy.sample(seed) for seed in seeds]
    return collate(GenerateText(toy.VOCABULARY, source=source).prepare(samples, Random(0)))


def changed(batch: Batch, name: str, place: int) -> Batch:
    """Another word at one place of the text or the target, or another look of one region."""
    values = getattr(batch, name).clone()
    if name == "features":
        values[:, place] += 1.0
    else:
        values[:, place] = torch.where(values[:, place] == 5, 6, 5)
    return replace(batch, **{name: values})


def moved(before: Tensor, after: Tensor) -> str:
    """Which positions a change reached: # moved, . did not."""
    return "".join(".#"[int(not torch.allclose(b, a, atol=1e-6))] for b, a in zip(before[0], after[0], strict=True))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_who_sees_whom(structure):
    model, batch = toy.tden(structure=structure), batch_of(0)  # 4 regions, 6 words
    before = model(batch)
    assert (before.regions.shape[1], before.text.shape[1], before.target.shape[1]) == (4, 6, 6)
    text = model(changed(batch, "text", 2))
    assert moved(before.regions, text.regions) == "####"
    assert moved(before.text, text.text) == "######"
    assert moved(before.target, text.target) == "......", "the words that are asked for leak"
    target = model(changed(batch, "target", 2))
    assert moved(before.target, target.target) == "..####"
    assert moved(before.text, target.text) == "......"
    assert moved(before.regions, target.regions) == "...."
    look = model(changed(batch, "features", 1))
    assert moved(before.target, look.target) == "######"
    assert moved(before.text, look.text) == "######"


@pytest.mark.parametrize("structure", STRUCTURES)
def test_unimodal_states_have_not_met(structure):
    model, batch = toy.tden(structure=structure), batch_of(0)
    (regions, text), other = model(batch).unimodal, model(changed(batch, "text", 2)).unimodal
    assert moved(regions.last, other[0].last) == "....."  # [IMG] and four regions
    assert moved(text.last, other[1].last) == "#######"  # [CLS] and six words
    looked = model(changed(batch, "features", 1)).unimodal
    assert moved(text.last, looked[1].last) == "......."
    assert moved(regions.last, looked[0].last) == "#####"


def test_the_decoder_looks_at_the_object_encoder():
    """tden.decoder_memory, paper: what the cross-modal encoder makes of the text is nothing to the decoder."""
    model, batch = toy.tden(decoder_memory="paper"), batch_of(0)
    assert moved(model(batch).target, model(changed(batch, "text", 2)).target) == "......"


def test_the_decoder_of_the_code_looks_at_regions_that_have_met_the_text():
    """tden.decoder_memory, official: the leak of pre-training; where no text is read there is none."""
    model, batch = toy.tden(decoder_memory="official"), batch_of(0)
    assert moved(model(batch).target, model(changed(batch, "text", 2)).target) == "######"
    paper = toy.tden(decoder_memory="paper")
    torch.testing.assert_close(model(batch.without_text()).target, paper(batch).target)


def test_one_feed_forward_or_one_a_modality():
    """tden.cross_ffn."""
    one, two = toy.tden(cross_ffn="paper"), toy.tden(cross_ffn="official")
    names = {name.removeprefix("cross.0.") for name in two.state_dict() if name.startswith("cross.0.region_")}
    assert len(names) == 6  # two layers and a norm, weights and biases
    assert not any("region_" in name for name in one.state_dict() if name.startswith("cross."))
    with torch.no_grad():
        two.cross[1].region_outer.bias[::2] += 1.0
    batch, fresh = batch_of(0), toy.tden(cross_ffn="official")
    assert moved(two(batch).regions, fresh(batch).regions) == "####"
    assert moved(two(batch).text, fresh(batch).text) == "......", "the text passed the regions' layer"


def test_masks_of_one_stream_that_writes():
    past = torch.full((1, 1, 3, 3), -1.0).triu(1)
    closed = closed_over(torch.tensor([[True, True, False]]), past)
    assert ["".join(".#"[int(cell < 0)] for cell in row) for row in closed[0, 0].tolist()] == [
        "..####",
        "..####",
        "..####",
        "..#.##",
        "..#..#",
        "..#...",
    ]


def test_img_is_the_mean_of_what_is_seen():
    model, batch = toy.tden(), batch_of(0)
    hidden = torch.tensor([[False, True, False, False]])
    seen: list[Tensor] = []
    model.regions.feature.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    model.read_regions(replace(batch, hidden=hidden))
    torch.testing.assert_close(seen[0][0, 0], batch.features[0, [0, 2, 3]].mean(0))
    assert (seen[0][0, 2] == 0).all(), "a hidden region keeps its feature"
    torch.testing.assert_close(seen[0][0, 3], batch.features[0, 2])


def test_a_picture_without_regions_is_its_frame():
    """No region found: [IMG] has no feature, its box is left, and nothing is NaN."""
    empty = replace(toy.sample(1), regions=toy.regions(0))
    batch = collate(GenerateText(toy.VOCABULARY).prepare([empty, toy.sample(2)], Random(0)))
    states = toy.tden()(batch)
    assert states.target.isfinite().all()
    assert states.text.isfinite().all()


@pytest.mark.parametrize("official", [False, True])
def test_answers_are_told_from_one_vector_or_two(official):
    """tden.vqa_fusion."""
    fusion = "official" if official else "paper"
    model = toy.tden("word", "answer", vqa_fusion=fusion, cross_ffn=fusion)
    batch = collate([toy.sample(0), toy.sample(1)])
    states = model(batch)
    assert len(states.written.layers) == 2
    scores = model.heads["answer"](states)
    assert scores.shape == ((2, 2, 7) if official else (2, 7))
    alone = model.heads["answer"](model(collate([toy.sample(1)])))
    torch.testing.assert_close(alone[0], scores[1], atol=1e-5, rtol=1e-5)
    # All three streams count: what the decoder read too.
    states.written.layers = (*states.written.layers[:-1], torch.zeros_like(states.written.last))
    other = model.heads["answer"](states)
    assert not torch.allclose(other, scores)
    if official:
        torch.testing.assert_close(other[:, 0], scores[:, 0])


@pytest.mark.parametrize("official", [False, True])
def test_the_similarity_reads_the_last_layer_or_all(official):
    """tden.similarity: pools and batch norm."""
    model = toy.tden(similarity="official" if official else "paper")
    head = model.heads["similarity"]
    assert len(head.regions.layers) == (2 if official else 1)
    assert any("running_mean" in name for name in head.state_dict()) is official
    states = model(batch_of(0, 1))
    pictures, texts = head(states)
    torch.testing.assert_close(pictures.norm(dim=1), torch.ones(2))
    states.unimodal[0].layers = (torch.zeros_like(states.unimodal[0].last), states.unimodal[0].last)
    assert torch.allclose(head(states)[0], pictures) is not official
    torch.testing.assert_close(head(states)[1], texts)


def test_two_towers_do_not_need_each_other():
    model, batch = toy.tden(), batch_of(0, 1, 2)
    pictures, texts = model.heads["similarity"](model(batch))
    torch.testing.assert_close(model.embed_pictures(batch.without_text()), pictures)
    without_regions = collate([replace(toy.sample(seed), regions=None) for seed in (0, 1, 2)])
    torch.testing.assert_close(model.embed_texts(without_regions), texts)


def test_words_of_the_head_are_the_embeddings_or_its_own():
    """tden.tied_words."""
    tied, own = toy.tden(tied_words=True), toy.tden(tied_words=False)
    assert "heads.word.words.weight" not in tied.state_dict()
    assert tied.heads["word"].rows is tied.text.words.weight
    assert own.state_dict()["heads.word.words.weight"].shape == own.text.words.weight.shape


def test_encoder_alone_and_decoder_alone():
    """Table 2, rows 1 and 2."""
    reader, writer = toy.tden(decoder_layers=0), toy.tden(cross_layers=0)
    assert reader.provides == {"regions", "text", "unimodal"}
    with pytest.raises(RecipeError, match="no decoder \\(decoder_layers=0\\)"):
        reader.begin(batch_of(0), 3)
    assert isinstance(writer, Writer)
    batch = batch_of(0)
    assert moved(writer(batch).regions, writer(changed(batch, "text", 2)).regions) == "....", "nothing was to meet"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"structure": "two-stream"}, "cannot use decoder_layers; set decoder_layers=0"),
        ({"structure": "single-stream"}, "cannot use object_layers or sentence_layers"),
        ({"structure": "two-stream", "decoder_layers": 0, "cross_layers": 0}, "set cross_layers above 0"),
        ({"width": 100}, "width 100 is not divisible by 12 heads"),
        ({"positions": 2}, "is too small for words"),
    ],
)
def test_what_does_not_fit_is_refused(changes, wanted):
    with pytest.raises(ValueError, match=wanted):
        TdenConfig(**changes)


def test_what_cannot_be_read_is_refused():
    model = toy.tden()
    with pytest.raises(DataError, match="a text has 17 words, but the model has positions for 16"):
        model.read_text(collate([replace(toy.sample(0), text=torch.full((16,), 5))]))
    with pytest.raises(DataError, match=r"9 regions, but the model reads at most 5"):
        model.read_regions(collate([replace(toy.sample(0), regions=toy.regions(9))]))
    with pytest.raises(RecipeError, match="the captions need 20 words, but positions=16 leaves room for 15"):
        model.begin(batch_of(0), 20)
    with pytest.raises(RecipeError, match="no head 'similarity'"):
        toy.tden("word").embed_pictures(batch_of(0))
    with pytest.raises(RecipeError, match="needs a decoder, but decoder_layers=0; raise it, or set vqa_fusion=paper"):
        toy.tden("answer", decoder_layers=0, vqa_fusion="official")
    with pytest.raises(RecipeError, match="no layer reads both question and image"):
        toy.tden("answer", cross_layers=0)


def test_official_sizes():
    """configs/pretrain/tden/tden.yaml:43: 6, 12, 6 and 6 layers."""
    shape = TdenConfig.base()
    assert (shape.object_layers, shape.sentence_layers, shape.cross_layers, shape.decoder_layers) == (6, 12, 6, 6)
    assert TdenConfig.base(structure="single-stream").cross_layers == 18
