"""TDEN's decoder with its memory against reading all words anew, on models that have learnt something."""

from random import Random

import pytest
import torch

from diptych.core import Batch, collate
from diptych.models.decoding import DecodingOptions, decode, search
from diptych.objectives import GenerateText, OneForward
from diptych.systems.tden.model import Tden
from tests import toy
from tests.decoding.generators import Uncached

pytestmark = pytest.mark.learns

COUNTS = (5, 1, 3, 2, 4, 1)


@pytest.fixture(scope="module", params=["decoupled", "two-stream", "single-stream"])
def trained(request: pytest.FixtureRequest) -> Tden:
    model = toy.tden("word", std=0.1, structure=request.param).train()
    update = OneForward((GenerateText(toy.VOCABULARY, reads="nothing"),))
    optimizer, rng = torch.optim.AdamW(model.parameters(), lr=4e-3), Random(0)
    for step in range(120):
        batch = collate(update.prepare([toy.sample(step * 24 + n) for n in range(24)], rng))
        for losses in update.losses(model, batch):
            (losses["generate_text"] / update.counts(batch)["generate_text"]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def ragged() -> Batch:
    return collate([toy.sample(10_000 + n, count) for n, count in enumerate(COUNTS)])


def test_the_model_has_learnt_to_name_its_regions(trained):
    batch = ragged()
    found = decode(trained, batch, DecodingOptions(max_words=8))
    wanted = [row[: row.index(toy.VOCABULARY.sep)] for row in batch.text.tolist()]
    assert sum(f[0].tokens == w for f, w in zip(found, wanted, strict=True)) >= 4
    assert len({len(f[0].tokens) for f in found}) > 2, "lengths should be ragged"


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
    together = decode(trained, ragged(), DecodingOptions(beams=3, max_words=9))
    for row, count in enumerate(COUNTS):
        (alone,) = decode(trained, collate([toy.sample(10_000 + row, count)]), DecodingOptions(beams=3, max_words=9))
        assert alone[0].tokens == together[row][0].tokens
        assert alone[0].score == pytest.approx(together[row][0].score, abs=1e-4)


def test_half_precision_writes_much_the_same(trained):
    options = DecodingOptions(beams=3, max_words=9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = decode(trained, ragged(), options)
    for ours, wanted in zip(half, decode(trained, ragged(), options), strict=True):
        assert ours[0].score == pytest.approx(wanted[0].score, abs=0.3)
