"""The search against exhaustive search, over a made-up writer whose next word depends on the words so far."""

import sys
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.core import Writer
from diptych.models.decoding import DecodingOptions, decode, search
from tests.support.tables_of_words import END, WORDS, Table, pictures


def exhaustive(table: Table, picture: int, most: int, penalty: float) -> tuple[float, list[int]]:
    best: tuple[float, list[int]] = (float("-inf"), [])
    others = [w for w in range(WORDS) if w != END]
    for length in range(1, most + 1):
        for body in product(others, repeat=length - 1):
            for last in [END] if length < most else range(WORDS):
                words, total = (*body, last), 0.0
                for n, word in enumerate(words):
                    total += float(table.scores(picture, words[:n]).log_softmax(-1)[word])
                found = total + penalty * length
                if found > best[0]:
                    best = (found, [w for w in words if w != END])
    return best


@pytest.mark.parametrize("penalty", [0.0, 0.8, -0.5])
def test_wide_search_against_exhaustive_search(penalty):
    """Five beams of three words: nothing is lost before the third word, and little after."""
    table, batch = Table(sharp=1.0), pictures(8)
    assert isinstance(table, Writer)
    found = decode(table, batch, DecodingOptions(beams=WORDS, max_words=3, length_bonus=penalty))
    hits = 0
    for picture in range(8):
        score, words = exhaustive(table, picture, 3, penalty)
        assert found[picture][0].score <= score + 1e-4
        if found[picture][0].score == pytest.approx(score, abs=1e-4):
            assert found[picture][0].tokens == words
            hits += 1
    assert hits >= 7


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beams=st.integers(1, 4),
    penalty=st.sampled_from([0.0, 0.7, 2.5, -0.6]),
    end=st.sampled_from([-1.0, 0.0, 2.0]),
    least=st.integers(0, 3),
)
def test_stopping_early_changes_no_best_text(seed, beams, penalty, end, least):
    options = DecodingOptions(beams=beams, max_words=7, length_bonus=penalty, min_words=least)
    early, late, batch = Table(seed, end=end), Table(seed, end=end), pictures(2)
    ours = decode(early, batch, options)
    theirs = decode(late, batch, options.model_copy(update={"stop_early": False}))
    assert [o[0] for o in ours] == [t[0] for t in theirs]
    assert early.steps <= late.steps == 7


def test_stopping_early_saves_steps():
    table = Table(end=4.0)
    decode(table, pictures(4), DecodingOptions(beams=3, max_words=20))
    assert table.steps < 8


def test_every_hypothesis_has_the_score_of_its_words():
    table, batch = Table(3), pictures(2)
    for penalty in (0.0, 1.5):
        options = DecodingOptions(beams=4, max_words=5, length_bonus=penalty)
        for picture, found in enumerate(decode(table, batch, options)):
            scores = [h.score for h in found]
            assert scores == sorted(scores, reverse=True)
            for hypothesis in found:
                words = (*hypothesis.tokens, *([END] if len(hypothesis.tokens) < 5 else []))
                total = sum(float(table.scores(picture, words[:n]).log_softmax(-1)[w]) for n, w in enumerate(words))
                assert hypothesis.score == pytest.approx(total + penalty * len(words), abs=1e-4)


def test_greedy_takes_the_best_word_each_time():
    table = Table(5, end=-3.0)
    words: tuple[int, ...] = ()
    while len(words) < 6 and END not in words:
        words = (*words, int(table.scores(0, words).argmax()))
    (found,) = decode(table, pictures(1), DecodingOptions(max_words=6))
    assert [h.tokens for h in found] == [[w for w in words if w != END]]


def test_min_words_refuses_the_end():
    for found in decode(Table(end=9.0), pictures(3), DecodingOptions(beams=2, max_words=6, min_words=3)):
        assert len(found[0].tokens) >= 3
    assert decode(Table(end=9.0), pictures(1), DecodingOptions(beams=2, max_words=6))[0][0].tokens == []


def test_what_follows_the_end_is_refused_and_the_penalty_stays():
    """The authors' bookkeeping: -10000 for each word after a [SEP], so such beams survive only where all ended."""
    table = Table(end=30.0)
    frames = search(table, pictures(1), DecodingOptions(max_words=4, stop_early=False))
    assert [int(words[0, 0]) for words in frames.words] == [END] * 4
    assert [round(float(scores[0, 0]), 1) for scores in frames.scores] == [0, -10000, -20000, -30000]
    (found,) = decode(table, pictures(1), DecodingOptions(beams=2, max_words=4, stop_early=False))
    assert all(END not in hypothesis.tokens and hypothesis.score > -1000 for hypothesis in found)


def test_options_are_checked():
    for wrong in ({"beams": 0}, {"max_words": 0}, {"beam": 2}):
        with pytest.raises(ValueError, match=r"beams|max_words|beam"):
            DecodingOptions(**wrong)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_an_ended_beam_may_keep_its_place(beams):
    """TDEN's code, by hand: an ended beam stays at no cost, so the rest have fewer places."""
    table, options = Table(7, end=1.0), DecodingOptions(beams=beams, max_words=5, ended="kept")
    (found,) = decode(table, pictures(1), options)
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(5):
        nexts = []
        for words, total in alive:
            if END in words:
                nexts.append((words, total))
                continue
            logs = table.scores(0, words).log_softmax(-1)
            nexts += [((*words, w), total + float(logs[w])) for w in range(WORDS)]
        alive = sorted(nexts, key=lambda item: -item[1])[:beams]
    assert [h.tokens for h in found] == [[w for w in words if w != END] for words, _ in alive]
    assert [h.score for h in found] == pytest.approx([total for _, total in alive], abs=1e-4)
    late = decode(Table(7, end=1.0), pictures(1), options.model_copy(update={"stop_early": False}))
    assert late == [found]


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(max_words=7),
        DecodingOptions(beams=3, max_words=7, length_penalty=0.7),
        DecodingOptions(beams=3, max_words=7, ended="kept"),
        DecodingOptions(sample=True, max_words=7),
    ],
)
def test_a_device_that_is_asked_seldom_writes_the_same(
    options: DecodingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written behind the end counts for nothing."""
    batch, asked = pictures(3), list[int]()
    batch = replace(batch, seeds=torch.arange(len(batch)))
    for seed in range(12):
        often, seldom = Table(seed, end=1.0), Table(seed, end=1.0)
        wanted = decode(often, batch, options)
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["diptych.models.decoding.search"], "ASYNCHRONOUS", ("cpu",))
            found = decode(seldom, batch, options)
        assert [row[0].tokens for row in found] == [row[0].tokens for row in wanted]
        assert [row[0].score for row in found] == pytest.approx([row[0].score for row in wanted])
        asked.append(seldom.steps - often.steps)
    assert max(asked) > 0, "some searches went on for a few words"
