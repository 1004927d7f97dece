"""What each way of choosing words does, over the made-up writer, and options that cannot be."""

import inspect
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.api.model import Model
from diptych.cli import app
from diptych.models.decoding import DecodingOptions, decode, search
from diptych.runtime.decoding import SETTINGS
from diptych.runtime.errors import RecipeError
from diptych.systems.recipe import parse
from diptych.tasks import CAPTION
from tests.attack.outputs import commands
from tests.support.tables_of_words import END, WORDS, Table, pictures


def test_length_norm_divides_the_log_probability():
    table, batch = Table(3), pictures(2)
    for found in decode(table, batch, DecodingOptions(beams=4, max_words=5, length_penalty=0.7)):
        scores = [h.score for h in found]
        assert scores == sorted(scores, reverse=True)
    (found,) = decode(table, pictures(1), DecodingOptions(beams=4, max_words=5, length_penalty=0.7))
    for hypothesis in found:
        words = (*hypothesis.tokens, *([END] if len(hypothesis.tokens) < 5 else []))
        total = sum(float(table.scores(0, words[:n]).log_softmax(-1)[w]) for n, w in enumerate(words))
        assert hypothesis.score == pytest.approx(total / len(words) ** 0.7, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), beams=st.integers(1, 4), norm=st.sampled_from([0.5, 1.0]))
def test_stopping_early_with_a_norm_changes_no_best_text(seed, beams, norm):
    options = DecodingOptions(beams=beams, max_words=6, length_penalty=norm)
    ours = decode(Table(seed), pictures(2), options)
    theirs = decode(Table(seed), pictures(2), options.model_copy(update={"stop_early": False}))
    assert [o[0] for o in ours] == [t[0] for t in theirs]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), run=st.integers(1, 3), beams=st.integers(1, 3), sample=st.booleans())
def test_no_run_of_words_comes_twice(seed, run, beams, sample):
    options = DecodingOptions(
        beams=1 if sample else beams, max_words=4 if run == 1 else 9, min_words=3, no_repeat_ngram=run, sample=sample,
    )  # fmt: skip
    torch.manual_seed(seed)
    for texts in decode(Table(seed), pictures(2), options):
        for text in texts:
            runs = [tuple(text.tokens[n : n + run]) for n in range(len(text.tokens) - run + 1)]
            assert len(set(runs)) == len(runs), text


def test_where_every_word_is_refused_the_text_still_ends():
    """Four words and [SEP] make a vocabulary of five: after four different words all is refused."""
    for sample in (False, True):
        options = DecodingOptions(sample=sample, max_words=8, min_words=8, no_repeat_ngram=1)
        torch.manual_seed(0)
        (found,) = decode(Table(1), pictures(1), options)
        assert 4 <= len(found[0].tokens) <= 8
        assert len(set(found[0].tokens[:4])) == 4


def test_words_are_drawn_as_often_as_the_model_says():
    table, count = Table(7, sharp=1.0), 4000
    torch.manual_seed(0)
    frames = search(table, pictures(1), DecodingOptions(sample=True, captions=count, max_words=1))
    seen = torch.bincount(frames.words[0][0], minlength=WORDS) / count
    assert torch.allclose(seen, table.scores(0, ()).softmax(-1), atol=0.03)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"temperature": 0.5}, lambda p: p**2),
        ({"top_k": 2}, lambda p: p * (p >= p.sort().values[-2])),
        ({"top_p": 0.4}, lambda p: p * (p >= p.max())),  # the likeliest word has a little more
        ({"temperature": 1e-3}, lambda p: (p == p.max()).float()),
    ],
    ids=["temperature", "top k", "top p", "cold"],
)
def test_what_is_left_to_draw_from(options, left):
    table, count = Table(7, sharp=1.0), 4000
    probabilities = table.scores(0, ()).softmax(-1)
    assert 0.4 < probabilities.max() < 0.5
    wanted = left(probabilities)
    torch.manual_seed(0)
    frames = search(table, pictures(1), DecodingOptions(sample=True, captions=count, max_words=1, **options))
    seen = torch.bincount(frames.words[0][0], minlength=WORDS) / count
    assert torch.allclose(seen, wanted / wanted.sum(), atol=0.03)
    assert not seen[wanted == 0].any()


def test_drawn_texts_have_the_model_s_own_log_probability():
    table = Table(2)
    torch.manual_seed(5)
    (found,) = decode(table, pictures(1), DecodingOptions(sample=True, captions=3, temperature=2.0, max_words=4))
    assert len(found) == 3
    assert all(better.score >= worse.score for better, worse in pairwise(found))
    for text in found:
        words = (*text.tokens, *([END] if len(text.tokens) < 4 else []))
        total = sum(float(table.scores(0, words[:n]).log_softmax(-1)[w]) for n, w in enumerate(words))
        assert text.score == pytest.approx(total, abs=1e-4)


def test_several_captions_are_waited_for():
    for found in decode(Table(4, end=4.0), pictures(3), DecodingOptions(beams=3, captions=3, max_words=12)):
        assert len({tuple(text.tokens) for text in found}) == 3
    assert [len(found) for found in decode(Table(4), pictures(2), DecodingOptions(beams=4, captions=2))] == [2, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beams": 0}, "beams"),
        ({"beam": 2}, "did you mean beams"),
        ({"min_words": 9, "max_words": 5}, "min_words=9 is more than max_words=5; lower min_words"),
        ({"length_penalty": 1, "length_bonus": 0.5}, "set one of them to 0"),
        ({"sample": True, "beams": 3}, "set beams=1, and captions=N"),
        ({"top_p": 0.9}, "only sampling uses top_p; add sample=true"),
        ({"sample": True, "top_p": 1.5}, "top_p"),
        ({"sample": True, "temperature": 0}, "temperature"),
        ({"captions": 4, "beams": 2}, "raise beams, or add sample=true"),
    ],
)
def test_options_that_cannot_be(values, message):
    with pytest.raises(RecipeError, match=message):
        parse(DecodingOptions, values, "decoding")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"beams": WORDS + 1},
            r"decoding\.beams=6 is more than the 5 words of the vocabulary; lower it",
        ),
        ({"sample": True, "top_k": 9}, r"decoding\.top_k=9 is more than the 5 words of the vocabulary"),
    ],
)
def test_wider_than_the_vocabulary(options, message):
    with pytest.raises(RecipeError, match=message):
        decode(Table(), pictures(1), DecodingOptions(**options))


def test_a_sample_draws_its_own_words_whichever_batch_it_is_in() -> None:
    """With seeds of samples, and whatever torch's generator says."""
    options = DecodingOptions(sample=True, captions=3, max_words=4, temperature=3.0)

    def drawn(*seeds: int) -> list[list[list[int]]]:
        batch = replace(pictures(len(seeds)), seeds=torch.tensor(seeds))
        return [[text.tokens for text in texts] for texts in decode(Table(7, sharp=1.0), batch, options)]

    one, other = drawn(5, 2**60, -9), drawn(7, 2**60)
    assert one[1] == other[1]
    assert one[0] != other[0]
    assert len({tuple(text) for texts in one for text in texts}) > 3


VERBS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_declared_once(name: str) -> None:
    """The recipe, a request, the Python API and the command line have its meaning and limits from there."""
    help, limits = SETTINGS[name]
    fields = DecodingOptions.model_fields[name], CAPTION.required_interface.request.model_fields[name]
    assert [field.description for field in fields] == 2 * [f"{help}."]
    own, asked = ({key: getattr(one, key) for one in field.metadata for key in ("ge", "le") if hasattr(one, key)}
                  for field in fields)  # fmt: skip
    assert own == limits
    assert limits.keys() <= asked.keys(), "a service may narrow a limit"
    assert asked.get("ge", 0) == limits.get("ge", asked.get("ge", 0))
    for verb in ("evaluate", "augment"):
        (option,) = (one for one in VERBS[verb].params if one.name == name)
        assert option.help == f"{help}; default: the recipe's."
    assert name in inspect.signature(Model.caption).parameters
