import json

import pytest

from diptych.core import Question, Record
from diptych.metrics.captions import caption_scores
from diptych.runtime.errors import DataError, RecipeError
from diptych.tasks import find_task
from diptych.tasks.baselines import vqa_baselines
from diptych.tasks.caption import caption_baselines, caption_gain, extra_caption_scores, score_captions
from diptych.tasks.scores import Scores
from diptych.tasks.vqa import score_vqa, vqa_gain

TRUTHS = {"1": ["a red dog runs", "a dog"], "2": ["the blue boat is small", "a boat"], "3": ["two cats", "cats"]}
SAID = {"1": "a red dog runs", "2": "a red boat", "3": "a dog"}


def test_captions_between_blind_and_ceiling() -> None:
    scores = score_captions(SAID, TRUTHS, caption_baselines(TRUTHS, [["a dog", "a dog runs"], ["a boat"]]))
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
    assert any(
        "learnt on 2 images; the most frequent training caption, “a boat”, gets CIDEr" in note for note in scores.notes
    )
    assert scores.to_json()["scores"]["CIDEr"]["interval"] == [scores["CIDEr"].low, scores["CIDEr"].high]


def test_without_training_words_there_is_no_baseline() -> None:
    one_each = {key: captions[:1] for key, captions in TRUTHS.items()}
    scores = score_captions(SAID, one_each, caption_baselines(one_each))
    assert scores["CIDEr"].blind is None
    assert scores["CIDEr"].ceiling is None
    assert "blind" not in scores.to_json()["scores"]["CIDEr"]


def test_java_is_looked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(RecipeError, match="METEOR needs Java on the PATH"):
        extra_caption_scores(SAID, TRUTHS, ["METEOR"])


def test_answers_all_and_by_kind() -> None:
    questions = [
        Question("a", "is it red", ("yes",) * 10, "yes/no"),
        Question("b", "how many", ("2",) * 10, "number"),
        Question("c", "is it blue", ("no",) * 10, "yes/no"),
    ]
    records = [Record("1", questions=tuple(questions[:2])), Record("2", questions=tuple(questions[2:]))]
    training = [Question("t", "is it green", ("no",) * 10, "yes/no")] * 2
    scores = score_vqa({"a": "yes", "b": "3", "c": "no"}, records, vqa_baselines(records, training))
    assert [s.name for s in scores.scores] == ["accuracy", "accuracy yes/no", "accuracy number"]
    assert scores["accuracy"].value == pytest.approx(200 / 3)
    assert scores["accuracy yes/no"].value == 100
    assert scores["accuracy"].blind == pytest.approx(100 / 3)  # `no` to everything
    assert scores["accuracy number"].ceiling == 100
    assert (scores.pictures, scores.items) == (2, 3)
    with pytest.raises(DataError, match="no predicted answer"):
        score_vqa({"a": "yes"}, records)
    with pytest.raises(DataError, match="no record has questions"):
        score_vqa({}, [Record("1")])


def test_saved_and_read_scores_are_the_same() -> None:
    scores = score_captions(SAID, TRUTHS, caption_baselines(TRUTHS, [["a dog"]]))
    assert Scores.from_json(json.loads(json.dumps(scores.to_json()))) == scores


def test_a_gain_is_paired() -> None:
    better = {"1": "a red dog runs", "2": "the blue boat is small", "3": "two cats"}
    gain = caption_gain(SAID, better, TRUTHS)
    apart = score_captions(better, TRUTHS)["CIDEr"].value - score_captions(SAID, TRUTHS)["CIDEr"].value
    assert gain.value == pytest.approx(apart)
    assert caption_gain(SAID, SAID, TRUTHS).high == 0
    records = [Record(str(n), questions=(Question(str(n), "why", ("so",) * 10),)) for n in range(4)]
    none, all_right = dict.fromkeys("0123", "no"), dict.fromkeys("0123", "so")
    answers = vqa_gain(none, all_right, records)
    assert (answers.value, answers.low, answers.high) == (100, 100, 100)


def test_cider_of_one_picture_is_explained() -> None:
    references = {"1": ("a boat on the sand",), "2": ("a red kite",)}
    one, two = (
        score_captions(some, {key: references[key] for key in some})
        for some in ({"1": "a boat on the sand"}, {"1": "a", "2": "b"})
    )
    assert one["CIDEr"].value == 0
    assert any(note.startswith("CIDEr of a single image is always 0") for note in one.notes)
    assert not any(note.startswith("CIDEr of a single image is") for note in two.notes)


@pytest.mark.parametrize("task", ["vqa", "nlvr", "entailment", "classify", "referring", "caption"])
def test_one_result_never_counts_for_two(task: str) -> None:
    """As where two files of a manifest number their questions from 1: the later one's answer was scored for both."""
    spec = find_task(task)
    one = {"key": "1", spec.scoring.key: "a"}
    assert spec.by_key([one, one | {"key": "2"}]) == {"1": "a", "2": "a"}
    with pytest.raises(DataError, match=f"two {spec.scoring.noun} of the split have this id.*`question_id`") as caught:
        spec.by_key([one, one])
    assert caught.value.key == "1"
