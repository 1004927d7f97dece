"""Baselines and ceilings, by examples small enough to count by hand."""

import math

import pytest

from diptych.core import Question
from diptych.metrics.captions import caption_scores
from diptych.runtime.errors import DataError
from diptych.tasks.baselines import (
    BlindAnswers,
    answer_ceiling,
    best_blind_caption,
    caption_ceiling,
    most_frequent_caption,
)


def ask(key: str, text: str, *answers: str, kind: str = "other") -> Question:
    return Question(key, text, answers * (10 // len(answers)), kind)


def test_the_most_frequent_caption_is_that_of_most_pictures() -> None:
    assert most_frequent_caption([["A dog.", "a dog"], ["a cat", "a dog"], ["a cat"], ["a cat", "a bird"]]) == "a cat"
    assert most_frequent_caption([["b"], ["a"]]) == "a"
    with pytest.raises(DataError, match="no training captions"):
        most_frequent_caption([[], []])


def test_the_best_blind_caption_scores_more_than_a_frequent_one_that_says_nothing() -> None:
    training = [["hello", f"a red dog on the grass near {name}"] for name in ("anna", "bert", "carl", "dora", "emil")]
    training += [["hello", f"{name} eats"] for name in ("fred", "gina", "hugo", "ivan")]
    best = best_blind_caption(training)
    assert most_frequent_caption(training) == "hello"
    assert best.startswith("a red dog on the grass")
    truths = {str(number): captions for number, captions in enumerate(training)}

    def cider(said: str) -> float:
        return caption_scores(dict.fromkeys(truths, said), truths)["CIDEr"]

    everything = {caption for captions in training for caption in captions}
    assert cider(best) == pytest.approx(max(cider(caption) for caption in everything))


def test_the_ceiling_of_people_who_say_the_same_is_full() -> None:
    same = {"1": ["a red dog runs"] * 3, "2": ["the blue boat is small"] * 3}
    ceiling = caption_ceiling(same)
    assert ceiling is not None
    assert ceiling["CIDEr"] == pytest.approx(10)
    assert ceiling["ROUGE-L"] == pytest.approx(1)
    assert ceiling["BLEU-4"] == pytest.approx(1, abs=1e-6)


def test_the_ceiling_counted_by_hand() -> None:
    """Words `x` and `z` are in one of two pictures, `y` too: each weighs log 2, and only orders 1 and 2 exist.

    Round 1 predicts `x y` and round 2 `x z` for picture 1: they share the unigram x: cosine 1/2, the bigrams nothing.
    CIDEr is 10/4 * 1/2 = 1.25. Picture 2 has both alike: unigrams 1, bigrams 1: 10/4 * 2 = 5. The mean is 3.125.
    """
    ceiling = caption_ceiling({"1": ["x y", "x z"], "2": ["v w", "v w"]})
    assert ceiling is not None
    assert ceiling["CIDEr"] == pytest.approx((1.25 + 5) / 2)
    assert ceiling["BLEU-1"] == pytest.approx(3 / 4, abs=1e-6)


def test_pictures_with_one_caption_have_no_ceiling() -> None:
    assert caption_ceiling({"1": ["a dog"], "2": ["a cat"]}) is None
    with_one = caption_ceiling({"1": ["a dog"], "2": ["a cat", "a cat"]})
    assert with_one is not None
    assert with_one["ROUGE-L"] == pytest.approx(1)


def test_blind_answers_back_off_to_the_first_words() -> None:
    training = [
        ask("0", "what colour is the dog", "red"),
        ask("1", "what colour is the dog", "red"),
        ask("2", "what colour is the cat", "blue"),
        ask("3", "is there a dog", "yes", kind="yes/no"),
        ask("4", "is there a cat", "no", kind="yes/no"),
        ask("5", "is there a bird", "no", kind="yes/no"),
    ]
    blind = BlindAnswers.of(training, at_least=1)
    asked = {
        "the same words": ("what colour is the dog", "red"),
        "all words but the last": ("what colour is the boat", "red"),
        "the first two": ("is there nobody", "no"),
        "no word in common": ("why", "no"),
    }
    for name, (text, answer) in asked.items():
        assert blind.answer(ask("q", text, "x")) == answer, name
    assert blind.majority([ask("q", "what", "x")]) == {"q": "no"}
    assert blind.majority_by_kind([ask("q", "why", "x"), ask("r", "why", "x", kind="yes/no")]) == {
        "q": "red",
        "r": "no",
    }


def test_rare_words_are_not_believed() -> None:
    training = [ask(str(n), "is there a dog", "no") for n in range(4)] + [ask("5", "is there a cat", "yes")]
    assert BlindAnswers.of(training, at_least=1).answer(ask("q", "is there a cat", "x")) == "yes"
    assert BlindAnswers.of(training, at_least=2).answer(ask("q", "is there a cat", "x")) == "no"


def test_how_much_to_believe_is_chosen_on_training_alone() -> None:
    coin = [ask(str(n), f"is there a thing{n // 2}", "yes" if n % 3 else "no") for n in range(300)]
    assert BlindAnswers.of(coin).at_least > 1  # what was asked once tells nothing of a coin
    with pytest.raises(DataError, match="no training question has answers"):
        BlindAnswers.of([Question("0", "why", ())])


def test_one_person_against_the_others() -> None:
    """Of ten, eight say red: each has seven others, full; two say pink: one other each, a third. 8 + 2/3 of ten."""
    split = Question("0", "what colour", ("red",) * 8 + ("pink",) * 2)
    agreed = Question("1", "how many", ("2",) * 10, "number")
    ceiling = answer_ceiling([split, agreed])
    assert ceiling is not None
    assert ceiling["other"] == pytest.approx((8 + 2 / 3) / 10)
    assert ceiling["number"] == 1
    assert ceiling["all"] == pytest.approx((1 + (8 + 2 / 3) / 10) / 2)
    assert answer_ceiling([Question("0", "why", ("because",))]) is None
    assert not math.isnan(ceiling["all"])
