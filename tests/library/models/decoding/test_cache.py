"""Decoding with the cache against decoding that recomputes everything, on a model that has learnt something."""

from dataclasses import replace

import pytest
import torch

from diptych.core import collate
from diptych.models.decoding import DecodingOptions, decode, search
from diptych.objectives import MaskedLanguage, MaskedQueries
from diptych.systems.unified_vlp.model import UnifiedVLP
from tests.support import generators, toy
from tests.support.generators import ragged, taught

pytestmark = pytest.mark.learns


@pytest.fixture(scope="module")
def trained() -> UnifiedVLP:
    objectives = MaskedQueries(toy.VOCABULARY), MaskedLanguage(toy.VOCABULARY, rate=0.4)
    return taught(toy.model("word", std=0.05), *objectives, steps=160)


def test_the_model_has_learnt_to_name_its_regions(trained):
    generators.check_names_its_regions(trained)


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("early", [True, False])
def test_cached_equals_uncached(trained, beams, early):
    options = DecodingOptions(beams=beams, max_words=9, stop_early=early, length_bonus=0.3)
    found, wanted = generators.check_cached_equals_uncached(trained, "unified-vlp", options)
    for ours, theirs in zip(found.scores, wanted.scores, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4 if (theirs > -1000).all() else 2e-2, rtol=1e-5)


def test_what_is_read_is_read_once(trained):
    """[CLS], regions, [SEP] and the first [MASK] once a picture; then the last word and [MASK] of each beam."""
    rows = []
    hook = trained.encoder.layers[0].attention.qkv.register_forward_hook(
        lambda module, given, result: rows.append(given[0].numel() // given[0].shape[-1])
    )
    search(trained, ragged(), DecodingOptions(beams=3, max_words=5, stop_early=False))
    hook.remove()
    pictures, padded = 6, 5
    assert rows == [pictures * (padded + 2 + 1)] + [pictures * 3 * 2] * 4


def test_company_changes_nothing(trained):
    generators.check_company_changes_nothing(trained)


def test_a_question_needs_no_text(trained):
    options, sample = DecodingOptions(max_words=8), toy.sample(1)
    empty = collate([replace(sample, text=torch.zeros(0, dtype=torch.long))])
    assert decode(trained, empty, options) == decode(trained, collate([sample]), options)


def test_half_precision_writes_the_same(trained):
    generators.check_half_precision(trained)


@pytest.mark.parametrize(("beams", "copies"), [(1, 0), (3, 4)])
def test_beams_are_copied_once_a_word_and_one_beam_never(trained, beams, copies, monkeypatch):
    """However many layers there are; the first word of all beams continues nothing."""
    sizes, select = [], torch.index_select

    def counted(rows, *given, **named):
        sizes.append(len(rows))
        return select(rows, *given, **named)

    monkeypatch.setattr(torch, "index_select", counted)
    search(trained, ragged(), DecodingOptions(beams=beams, max_words=6, stop_early=False))
    assert sizes == [2 * len(trained.encoder.layers)] * copies
