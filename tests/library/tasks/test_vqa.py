"""Answers are given of what was seen, or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.core import Question, Record
from diptych.data.extract.extract import extract
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError
from diptych.systems import RECIPES, find_recipe
from diptych.tasks.answers import Answers, rule_notes
from diptych.tasks.baselines import vqa_baselines
from diptych.tasks.run import predict_records
from diptych.tasks.spec import TrainingRecords
from diptych.tasks.vqa import VQA, score_vqa
from diptych.testing import EIGHT
from diptych.vision.detectors.ground_truth import GroundTruth
from tests.support.cases import case_of
from tests.support.deciding import TOKENS
from tests.support.learning import learner_of


def test_features_that_are_not_finite_are_named_and_not_answered() -> None:
    case = case_of("vl-bert/small/vqa")
    seen = EIGHT[1].regions
    assert seen is not None
    assert seen.features is not None
    broken = replace(EIGHT[1], regions=replace(seen, features=torch.full_like(seen.features, torch.nan)))
    with pytest.raises(DataError, match=r"scores are not finite.*record p1"):
        predict_records(case.task, case.model, [EIGHT[0], broken])


@pytest.mark.parametrize("form", ["binary", "softmax"])
def test_a_question_that_nobody_answered_is_asked_and_neither_taught_nor_scored(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose answer is not on the list teaches, by binary cross-entropy, that all on it are wrong (VL-BERT)."""
    asked = (
        Question("a", "is it red", ("yes",)),
        Question("b", "is it blue", ()),
        Question("c", "is it green", ("no",)),
    )
    records = [Record("p", questions=asked)]
    task = replace(RECIPES["vl-bert/small/vqa"]().task_with(TOKENS, Answers(("<unk>", "yes"))), form=form)
    assert [one.key for one in task.queries(records[0])] == ["a", "b", "c"]
    assert [one.key for one in task.samples(records[0])] == (["a", "c"] if form == "binary" else ["a"])
    said = {"a": "yes", "b": "no", "c": "no"}
    assert task.score([{"key": key, "answer": one} for key, one in said.items()], records)["accuracy"] == 100
    scores = score_vqa(said, records, vqa_baselines(records, asked[:1]))
    assert (scores["accuracy"].value, scores["accuracy"].blind, scores.items) == (100, 50, 2)
    assert "left out because they have no answers: 1 question" in scores.notes
    monkeypatch.setattr(TrainingRecords, "words", lambda _: iter(records))
    notes = list(VQA.training.notes(task, TrainingRecords.__new__(TrainingRecords)))
    assert notes[0] == "1 of 3 questions are left out: they have no answers"
    fate = "are trained with every answer as wrong" if form == "binary" else "are left out"
    assert notes[1] == f"1 of 3 questions {fate}: the model's list has none of their answers (the first: c, 'no')"


def test_an_article_alone_is_an_answer() -> None:
    """It was left out while the normal form of `a` was empty."""
    asked = (Question("a", "what letter is it", ("a",)), Question("b", "what letter is it", ("b",)))
    assert Answers.of([Record("p", questions=asked)]).names == ("<unk>", "a", "b")


def test_accuracy_is_scored_by_the_first_two_words_of_a_question() -> None:
    texts = [*["What is it?"] * 100, *["What, colour of hat?"] * 150, *["How many?"] * 99]
    asked = [Question(str(at), text, ("dog",)) for at, text in enumerate(texts)]
    said = {one.key: "dog" if one.text.startswith("What is") else "cat" for one in asked}
    scores = score_vqa(said, [Record("a", questions=tuple(asked))])
    assert {one.name: one.value for one in scores.scores if " of " in one.name} == {
        "accuracy of what colour": 0, "accuracy of what is": 100,
    }  # fmt: skip
    assert "from 100 questions: what colour 150, what is 100" in "".join(scores.notes)
    alike = score_vqa(said, [Record("a", questions=tuple(asked[:100]))])
    assert [one.name for one in alike.scores if " of " in one.name] == []


def test_the_recipe_cuts_the_list_of_answers(tmp_path: Path) -> None:
    from diptych_world.book import record
    from diptych_world.layout import scene

    records = [record(scene(0, "train", number)) for number in range(12)]
    extract(records, GroundTruth.of(records), tmp_path / "store")
    every = Answers.of(records).names
    counts = {least: len(Answers.of(records, least).names) for least in (1, 3)}
    assert counts[3] < counts[1] == len(every)

    def names(*settings: str) -> tuple[str, ...]:
        recipe = find_recipe("vl-bert/small/vqa", ["training.validate_every=null", *settings])
        answers = learner_of(tmp_path / "run", recipe, Store(tmp_path / "store")).answers
        assert answers is not None
        return answers.names

    assert names() == every
    assert names("data.answers_most=2") == every[:3], "the two most frequent, after the one that stands for all others"
    assert names("data.answers_at_least=3") == Answers.of(records, 3).names


FORMS = ("Green", "Two", "the postman.", "T-shirt", "1,000", "A", "Yes")


def test_a_model_that_is_right_gets_100_in_validation_evaluation_and_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list, the targets, validation, scores and both blind baselines have answers in one form."""
    questions = tuple(Question(f"q{at}", f"word{at} is what", (one,)) for at, one in enumerate(FORMS * 4))
    records = [Record("p", questions=questions)]
    answers = Answers.of(records)
    assert set(answers.names[1:]) == {"green", "2", "postman", "t shirt", "1000", "a", "yes"}
    task = RECIPES["vl-bert/small/vqa"]().task_with(TOKENS, answers)
    told = {one.key: answers.names[max(answers.scores(one.answers))] for one in questions}
    assert task.score([{"key": key, "answer": one} for key, one in told.items()], records)["accuracy"] == 100
    accuracy = score_vqa(told, records, vqa_baselines(records, questions))["accuracy"]
    assert accuracy.value == accuracy.blind == 100
    monkeypatch.setattr(TrainingRecords, "words", lambda _: iter(records))
    assert not list(VQA.training.notes(task, TrainingRecords.__new__(TrainingRecords)))


def test_ten_equal_answers_that_no_model_can_reach_are_named() -> None:
    questions = (Question("1", "what colour", ("Green",) * 10), Question("2", "what colour", ("green",) * 10))
    scores = score_vqa({"1": "green", "2": "green"}, [Record("p", questions=questions)])
    assert scores["accuracy"].value == 50
    assert any(
        note.startswith("1 of 2 questions have ten equal answers") and "'Green'" in note for note in scores.notes
    )


@pytest.mark.parametrize(
    ("answers", "notes"),
    [(("-5", "5"), 1), (("1,5", "15"), 1), (("C++", "C"), 1), (("B-", "B", "B+"), 1), (("<5", ">5", "5"), 1),
     (("1,000", "1000"), 0), (("t-shirt", "T shirt"), 0), (("5.", "5"), 0)],
)  # fmt: skip
def test_answers_that_the_rule_takes_as_one_are_named(answers: tuple[str, ...], notes: int) -> None:
    said = rule_notes([Question(answer, "how much", (answer,)) for answer in answers])
    assert len(said) == notes
    assert all(f"so {' and '.join(map(repr, answers))} are one answer: models cannot" in note for note in said)


def test_a_published_list_in_another_form_learns_its_answers() -> None:
    assert Answers(("<unk>", "t-shirt", "unk")).scores(["T-shirt"]) == {1: 1}
    assert Answers(("<unk>", "t-shirt", "t shirt")).scores(["T-shirt", "<unk>"]) == {2: 1}
