from collections.abc import Callable
from pathlib import Path

import pytest

from diptych.core import Sample
from diptych.data.store.corpus import Corpus, Lines
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store
from diptych.data.store.tokens import SPECIAL, Tokens
from diptych.runtime.errors import DataError
from tests.library.data.conftest import MakeStore
from tests.support.loaded import Always, captions

WORDS = ("a", "dog", "runs", "##ning", "past", "the", "red", "kite")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
    return Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=True)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "books.txt"
    path.write_text("a dog\n\nruns past\nthe red kite\n")
    return path


def said(tokens: Tokens, sample: Sample) -> str:
    return tokens.decode(sample.text.tolist())


def test_a_text_runs_on_over_lines_and_round_the_end(tokens: Tokens, text: Path) -> None:
    corpus = Corpus(text, tokens, words=4)
    assert len(corpus) == 3  # empty lines are none
    assert [said(tokens, corpus.sample(n)) for n in range(3)] == [
        "a dog runs past",
        "runs past the red",
        "the red kite a",
    ]
    first = corpus.sample(0)
    assert first.regions is None
    assert (first.key, first.picture) == ("books.txt:0", "books.txt:0")
    assert tokens.vocabulary.sep not in first.text  # no marks
    assert len(Corpus(text, tokens, words=100).sample(0).text) == 100  # round and round


def test_or_a_text_is_a_line_with_its_end(tokens: Tokens, text: Path) -> None:
    corpus = Corpus(text, tokens, words=2, joined=False)
    assert [corpus.sample(n).text.tolist()[-1] for n in range(3)] == [tokens.vocabulary.sep] * 3
    assert [said(tokens, corpus.sample(n)) for n in range(3)] == ["a dog", "runs past", "the red"]


def test_lines_of_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes("kätzchen\r\n\n".encode() + b"\xff\xfe dog\nno end")
    lines = Lines(path)
    assert [lines[n].strip() for n in range(len(lines))] == ["kätzchen", "\ufffd\ufffd dog", "no end"]


def test_no_text_is_refused(tmp_path: Path, tokens: Tokens) -> None:
    path = tmp_path / "nothing.txt"
    with pytest.raises(DataError, match=r"no text at .*nothing.txt; expected a text file"):
        len(Corpus(path, tokens))
    path.write_text("")
    with pytest.raises(DataError, match="is empty"):
        Lines(path)
    path.write_text("\n\n")
    with pytest.raises(DataError, match="has only empty lines"):
        Lines(path)
    path.write_text("  \n \n")
    with pytest.raises(DataError, match="256 lines in a row without a word"):
        Corpus(path, tokens).sample(0)


def mixed(store: Store, corpus: Corpus, alone: float, batch: int = 4, seed: int = 0) -> Loader:
    return Loader(store, range(len(store)), captions, Always(), batch, seed, corpus=corpus, alone=alone)


def test_half_of_each_batch_is_text(make_store: MakeStore, tokens: Tokens, text: Path) -> None:
    loader = mixed(make_store(10), Corpus(text, tokens, 4), 0.5)
    pictured = loader.at(0, 0, 1).regions_present.any(1).tolist()
    assert sum(pictured) == 2
    assert len(pictured) == 4
    assert len(loader) == 20
    assert loader.steps_per_epoch == 10
    for part in range(2):  # of each part too
        assert loader.at(3, part, 2).regions_present.any(1).tolist() == [True, False]


def test_text_depends_on_seed_step_and_part_alone(make_store: MakeStore, tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("\n".join("a dog" for _ in range(100)))
    store, corpus = make_store(10), Corpus(path, tokens, 4)
    one, other = mixed(store, corpus, 0.5), mixed(store, corpus, 0.5)
    later = [other.at(step, 1, 2) for step in (7, 2)]
    assert one.at(2, 1, 2).keys == later[1].keys
    assert one.at(7, 1, 2).text.equal(later[0].text)
    assert mixed(store, corpus, 0.5, seed=1).at(2, 1, 2).keys != later[1].keys
    whole = mixed(store, corpus, 1.0, batch=10)
    lines = [key for step in range(whole.steps_per_epoch) for key in whole.at(step, 0, 1).keys]
    assert len(set(lines)) == len(lines) == len(whole) == 100  # each line once an epoch
    assert not whole.at(0, 0, 1).regions_present.any()


def test_nothing_but_text_reads_no_record(make_store: MakeStore, tokens: Tokens, text: Path) -> None:
    def none(record: object) -> list[Sample]:
        raise AssertionError(record)

    store = make_store(3)
    to_samples: Callable[..., list[Sample]] = none
    loader = Loader(store, range(3), to_samples, Always(), 2, 0, corpus=Corpus(text, tokens, 4), alone=1.0)
    assert len(loader.at(0, 0, 1)) == 2
