import pytest

from diptych.core import Question, Record
from diptych.errors import DataError, RecipeError
from diptych.metrics import caption_scores
from diptych.tasks.scores import score_answers, score_captions

TRUTHS = {"1": ["a red dog runs", "a dog"], "2": ["the blue boat is small", "a boat"], "3": ["two cats", "cats"]}
SAID = {"1": "a red dog runs", "2": "a red boat", "3": "a dog"}


def test_captions_between_blind_and_ceiling() -> None:
    scores = score_captions(SAID, TRUTHS, [["a dog", "a dog runs"], ["a boat"]])
    plain = caption_scores(SAID, TRUTHS)
    for name, value in plain.items():
        score = scores[name]
        assert score.value == pytest.approx(100 * value)
        assert score.low is not None
        assert score.high is not None
        assert score.low <= score.value <= score.high
        assert score.blind is not None
        assert score.ceiling is not None
    assert (scores.pictures, scores.items, scores.coverage) == (3, 3, 1.0)
    assert any("blind: the training caption" in note for note in scores.notes)
    assert scores.to_json()["scores"]["CIDEr"]["interval"] == [scores["CIDEr"].low, scores["CIDEr"].high]


def test_without_training_words_there_is_no_baseline() -> None:
    scores = score_captions(SAID, {key: captions[:1] for key, captions in TRUTHS.items()})
    assert scores["CIDEr"].blind is None
    assert scores["CIDEr"].ceiling is None
    assert "blind" not in scores.to_json()["scores"]["CIDEr"]


def test_java_is_looked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(RecipeError, match="METEOR needs Java on the PATH"):
        score_captions(SAID, TRUTHS, also=["METEOR"])


def test_answers_all_and_by_kind() -> None:
    questions = [
        Question("a", "is it red", ("yes",) * 10, "yes/no"),
        Question("b", "how many", ("2",) * 10, "number"),
        Question("c", "is it blue", ("no",) * 10, "yes/no"),
    ]
    records = [Record("1", questions=tuple(questions[:2])), Record("2", questions=tuple(questions[2:]))]
    training = [Question("t", "is it green", ("no",) * 10, "yes/no")] * 2
    scores = score_answers({"a": "yes", "b": "3", "c": "no"}, records, training)
    assert [s.name for s in scores.scores] == ["accuracy", "accuracy yes/no", "accuracy number"]
    assert scores["accuracy"].value == pytest.approx(200 / 3)
    assert scores["accuracy yes/no"].value == 100
    assert scores["accuracy"].blind == pytest.approx(100 / 3)  # `no` to everything
    assert scores["accuracy number"].ceiling == 100
    assert (scores.pictures, scores.items) == (2, 3)
    with pytest.raises(DataError, match="no predicted answer"):
        score_answers({"a": "yes"}, records)
    with pytest.raises(DataError, match="no record has questions"):
        score_answers({}, [Record("1")])
