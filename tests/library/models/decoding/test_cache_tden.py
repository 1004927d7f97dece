"""TDEN's decoder with its memory against reading all words anew, on models that have learnt something."""

import pytest

from diptych.models.decoding import DecodingOptions, search
from diptych.objectives import GenerateText
from diptych.systems.tden.model import Tden
from tests.support import generators, toy
from tests.support.generators import ragged, taught

pytestmark = pytest.mark.learns


@pytest.fixture(scope="module", params=["decoupled", "two-stream", "single-stream"])
def trained(request: pytest.FixtureRequest) -> Tden:
    model = toy.tden("word", std=0.1, structure=request.param)
    return taught(model, GenerateText(toy.VOCABULARY, reads="nothing"), steps=120)


def test_the_model_has_learnt_to_name_its_regions(trained):
    generators.check_names_its_regions(trained)


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("ended", ["dropped", "kept"])
def test_cached_equals_uncached(trained, beams, ended):
    options = DecodingOptions(beams=beams, max_words=9, ended=ended)
    generators.check_cached_equals_uncached(trained, "tden", options)


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
