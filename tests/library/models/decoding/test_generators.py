"""Ways to choose words with the memory against without, and against one pass over all words, in every system."""

from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.core import Batch
from diptych.models.decoding import DecodingOptions, decode
from diptych.objectives import SelfCritical
from tests.support import toy
from tests.support.generators import GENERATORS, Uncached, ragged, trained

pytestmark = pytest.mark.learns


class Unasked:
    """A reward of nothing."""

    def __call__(self, batch: Batch, captions: Any) -> Tensor:
        raise NotImplementedError

    def spell(self, caption: list[int]) -> str:
        raise NotImplementedError


@pytest.fixture(scope="module", params=GENERATORS)
def system(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def model(system: str) -> Any:
    return trained(system)


def test_lengths_are_ragged(model: Any) -> None:
    found = decode(model, ragged(), DecodingOptions(max_words=8))
    assert len({len(texts[0].tokens) for texts in found}) > 2


@pytest.mark.parametrize(
    "options",
    [
        {"beams": 4, "length_penalty": 0.7, "min_words": 3, "captions": 3},
        {"beams": 3, "no_repeat_ngram": 1, "min_words": 5},
        {"sample": True, "captions": 4, "temperature": 1.7, "top_k": 12, "top_p": 0.95},
        {"sample": True, "captions": 3, "no_repeat_ngram": 2, "min_words": 6},
    ],
    ids=str,
)
def test_cached_equals_uncached_token_for_token(system: str, model: Any, options: dict[str, Any]) -> None:
    chosen, batch, found = DecodingOptions(max_words=9, **options), ragged(), []
    for writer in (model, Uncached(model, system)):
        torch.manual_seed(3)
        found.append(decode(writer, batch, chosen))
    for ours, theirs in zip(*found, strict=True):
        assert [o.tokens for o in ours] == [t.tokens for t in theirs]
        assert [o.score for o in ours] == pytest.approx([t.score for t in theirs], abs=1e-4)
        assert len(ours) == (chosen.captions or len(theirs))


def test_one_pass_gives_the_probabilities_that_words_were_drawn_with(system: str, model: Any) -> None:
    """What SCST differentiates is what decoding did: texts that ended, texts cut short, and the empty text."""
    batch, words = ragged(), 4
    torch.manual_seed(1)
    found = decode(model, batch, DecodingOptions(sample=True, captions=5, max_words=words, temperature=2.0))
    end = toy.VOCABULARY.sep
    captions = [[[*t.tokens, end] if len(t.tokens) < words else t.tokens for t in texts] for texts in found]
    assert {len(caption) for texts in captions for caption in texts} >= {3, 4}
    update = SelfCritical(GENERATORS[system][1], Unasked(), lambda *_: captions, samples=5)
    logs = update.log_probabilities(model, batch, captions)
    wanted = torch.tensor([text.score for texts in found for text in texts])
    torch.testing.assert_close(logs, wanted, atol=1e-5, rtol=1e-5)
    assert logs.requires_grad
    empty = update.log_probabilities(model, batch, [[[end]]] * len(batch))
    with torch.no_grad():
        first, _ = model.begin(batch, 1)
    torch.testing.assert_close(empty, first.log_softmax(-1)[:, end], atol=1e-5, rtol=1e-5)
