"""The bigram classifier, and the blind baselines that take the better of it and a rule."""

from dataclasses import replace

import pytest
import torch

from diptych.core import Choices, Question, Record
from diptych.runtime.errors import DataError
from diptych.tasks.baselines import vcr_baselines, vqa_baselines
from diptych.tasks.bigrams import BigramClassifier, grams_of

# The answer is in the last word, so the rule on first words guesses and pairs of words do not.
ASKED = [(f"what is {filler} {thing}", answer) for filler in ("this", "that", "one", "a", "it", "here") * 5
         for thing, answer in (("ball", "red"), ("sea", "blue"), ("grass", "green"))]  # fmt: skip


def questions(part: str) -> list[Question]:
    return [Question(f"{part}{n}", text, (answer,) * 10, "other") for n, (text, answer) in enumerate(ASKED)]


def test_grams_are_words_and_pairs_of_neighbours_by_place() -> None:
    assert grams_of("A dog") == ["0 <s>", "0 a", "0 dog", "0 </s>", "0 <s> a", "0 a dog", "0 dog </s>"]
    assert set(grams_of("why", "it runs")) - set(grams_of("why")) >= {"1 it", "1 it runs", "why / it", "why / runs"}


def test_the_classifier_is_the_same_again_and_leaves_the_random_state() -> None:
    texts, targets = [grams_of(text) for text, _ in ASKED], [{answer: 1.0} for _, answer in ASKED]
    torch.manual_seed(3)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    with torch.inference_mode():
        first, second = (BigramClassifier.of(texts, targets) for _ in range(2))
    assert torch.rand(1) == drawn
    assert (
        first.answers(["what is one sea", "what is here grass"])
        == second.answers(["what is one sea", "what is here grass"])
        == ["blue", "green"]
    )
    assert torch.equal(first.scores(texts, "red"), second.scores(texts, "red"))
    with pytest.raises(DataError, match="no training text has a class"):
        BigramClassifier.of([["a"]], [{}])


def test_the_blind_answers_are_the_better_of_rule_and_classifier() -> None:
    records = [Record("1", questions=tuple(questions("t")))]
    baselines = vqa_baselines(records, questions("l"))
    assert baselines.blind["all"] == 1
    assert baselines.predicted is not None
    assert baselines.predicted["t1"] == "blue"
    assert "the better of the most frequent answer by first words" in baselines.notes[0]
    assert "and 100.0" in baselines.notes[0]
    # Three questions teach a classifier nothing that the rule does not know: the same words.
    few = [replace(one, answers=("yes",) * 10) for one in questions("l")[:1]]
    assert vqa_baselines(records, few).blind["all"] == 0


def test_a_choice_may_depend_on_the_question() -> None:
    """Both answers are right equally often: only with the question's first word can one choose."""

    def ask(number: int) -> Choices:
        first = number % 2
        return Choices(
            str(number), ("who" if first else "where") + f" is it {number % 3}", ("a man", "a park"), 1 - first
        )

    data = [Record(str(part), choices=tuple(map(ask, range(60)))) for part in (0, 1)]
    assert vcr_baselines(data[:1], data[1:]).blind["Q->A"] == 1


def test_equal_texts_have_equal_scores_in_every_row() -> None:
    """Rounding by row gave a blind AUROC of 100 where labels alternate."""
    texts = [grams_of("what a day")] * 30
    made = BigramClassifier.of(texts, [{f"label{1 - at % 2}": 1.0} for at in range(30)])
    for number in range(50):  # rounding differs with some of these biases
        with torch.no_grad():
            made.network[-1].get_parameter("bias").copy_(torch.tensor([0.0, number / 1000]))
        for name in made.classes:
            scores = made.scores([*texts[:6], grams_of("what a night")], name)
            assert len(scores) == 7
            assert len(set(scores[:6].tolist())) == 1
