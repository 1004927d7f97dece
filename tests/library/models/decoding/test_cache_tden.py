"""TDEN's decoder with its memory against reading all words anew, on models that have learnt something."""

from random import Random

import pytest
import torch

from diptych.core import collate
from diptych.models.decoding import DecodingOptions, decode, search
from diptych.objectives import GenerateText, OneForward
from diptych.systems.tden.model import Tden
from tests.support import generators, toy
from tests.support.generators import Uncached, ragged

pytestmark = pytest.mark.learns


@pytest.fixture(scope="module", params=["decoupled", "two-stream", "single-stream"])
def trained(request: pytest.FixtureRequest) -> Tden:
    model = toy.tden("word", std=0.1, structure=request.param).train()
    update = OneForward((GenerateText(toy.VOCABULARY, reads="nothing"),))
    optimizer, rng = torch.optim.AdamW(model.parameters(), lr=4e-3, fused=True), Random(0)
    for step in range(120):
        batch = collate(update.prepare([toy.sample(step * 24 + n) for n in range(24)], rng))
        for losses in update.losses(model, batch):
            (losses["generate_text"] / update.counts(batch)["generate_text"]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def test_the_model_has_learnt_to_name_its_regions(trained):
    generators.check_names_its_regions(trained)


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("ended", ["dropped", "kept"])
def test_cached_equals_uncached(trained, beams, ended):
    options, batch = DecodingOptions(beams=beams, max_words=9, ended=ended), ragged()
    ours, theirs = search(trained, batch, options), search(Uncached(trained, "tden"), batch, options)
    assert len(ours) == len(theirs)
    for n in range(len(ours)):
        alive = theirs.scores[n] > -1000
        assert torch.equal(ours.words[n][alive], theirs.words[n][alive])
        assert torch.equal(ours.parents[n][alive], theirs.parents[n][alive])
    for mine, other in zip(
        decode(trained, batch, options), decode(Uncached(trained, "tden"), batch, options), strict=True
    ):
        assert mine[0].tokens == other[0].tokens
        assert mine[0].score == pytest.approx(other[0].score, abs=1e-4)


def test_what_is_read_is_read_once(trained):
    """Positions that pass a projection: [IMG] and regions once a picture, then one word a beam and step."""
    single = trained.config.structure == "single-stream"
    layer = trained.cross[0] if single else trained.sentence[0]
    rows = []
    hook = layer.attention.qkv.register_forward_hook(
        lambda module, given, result: rows.append(given[0].numel() // given[0].shape[-1])
    )
    search(trained, ragged(), DecodingOptions(beams=3, max_words=5, stop_early=False))
    hook.remove()
    pictures, padded, beams = 6, 5, 3
    read = [pictures * (padded + 1)] if single else []
    assert rows == [*read, pictures] + [pictures * beams] * 4


def test_company_changes_nothing(trained):
    generators.check_company_changes_nothing(trained)


def test_half_precision_writes_much_the_same(trained):
    generators.check_half_precision(trained)
