"""Texts of the training data that a model keeps as examples."""

from dataclasses import replace
from pathlib import Path

from diptych.core import Question
from diptych.data.store.store import Store, StoreWriter
from diptych.runs.words import example_texts
from tests.library.data.conftest import CONTRACT, record


def test_the_most_frequent_short_texts_are_examples(tmp_path: Path) -> None:
    asked = [["is it red?", "w" * 61], ["where is it?", "is it red?"], *([f"what is {n}?"] for n in range(9))]
    with StoreWriter(tmp_path / "store", CONTRACT) as writer:
        for number, texts in enumerate(asked):
            questions = tuple(Question(f"{number}-{at}", text, ("no",)) for at, text in enumerate(texts))
            writer.add(replace(record(number), questions=questions, captions=("", f"image {number}")))
    store = Store(tmp_path / "store")
    found = example_texts(store, range(len(asked)), "questions")
    assert found == ("is it red?", "where is it?", "what is 0?", "what is 1?", "what is 2?")
    assert example_texts(store, [2, 1], "captions") == ("image 2", "image 1")
    assert example_texts(store, [0], "of another task") == ()
