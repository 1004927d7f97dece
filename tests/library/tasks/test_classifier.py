"""Classifiers by labels of the data: their lists, scores and baselines."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diptych.core import Record, TaskItem
from diptych.data.check import check
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError
from diptych.systems import add_task
from diptych.tasks import CLASSIFY
from diptych.tasks.answers import Answers
from diptych.tasks.classifier import AUROC, Metric, classifier, labels_of
from diptych.tasks.spec import TaskOptions, TrainingRecords
from diptych.testing import EIGHT, Case, check_overfit
from tests.support.tables import added

TOKENS = Tokens.train(["how nice", "how sad"])


def records(*labels: str | None, text: str = "how nice", task: str = "classify") -> list[Record]:
    items = ((TaskItem(f"i{n}", text, () if label is None else (label,)),) for n, label in enumerate(labels))
    return [Record(f"r{n}", more={task: one}) for n, one in enumerate(items)]


def test_labels_are_those_of_the_data_in_order() -> None:
    """As they are written: `Not Funny` and `A/B` are no answers of VQA, which are put into a normal form."""
    some = records("Not Funny", "A/B", None, "A/B", "rare ")
    assert labels_of("classify", some) == Answers(("A/B", "Not Funny", "rare"), task="classify")
    assert labels_of("classify", some, most=1 + 1).names == ("A/B", "Not Funny")
    with pytest.raises(DataError, match=r"at least two labels, but .* records have 1 for classify \(A/B\)"):
        labels_of("classify", some, at_least=2)


def test_labels_that_differ_in_case_or_accents_alone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    some = records("Funny", "funny", "caf\u00e9", "cafe\u0301", "sad", "cat.", "ｃat")
    (finding,) = (one for one in check(some, pictures=False).findings if one.kind == "labels alike")
    assert finding.examples == [
        "classify: 'cafe\\u0301', 'caf\\xe9'",
        "classify: 'cat.', '\\uff43at'",
        "classify: 'Funny', 'funny'",
    ]
    assert CLASSIFY.training.notes is not None
    task = CLASSIFY.build(TaskOptions(TOKENS, labels_of("classify", some)))
    monkeypatch.setattr(TrainingRecords, "words", lambda _: iter(some))
    notes = list(CLASSIFY.training.notes(task, object.__new__(TrainingRecords)))
    assert [note.split(" differ")[0] for note in notes] == [
        "labels 'cafe\\u0301', 'caf\\xe9'",
        "labels 'cat.', '\\uff43at'",
        "labels 'Funny', 'funny'",
    ]


def test_scores_by_hand_with_intervals_and_what_words_alone_give() -> None:
    some = records("Not Funny", "A/B", "A/B", None)
    predicted = {
        "i0": {"A/B": 0.6, "Not Funny": 0.4},
        "i1": {"A/B": 0.9, "Not Funny": 0.1},
        "i2": {"A/B": 0.3, "Not Funny": 0.7},
        "i3": {"A/B": 0.3, "Not Funny": 0.7},
    }
    scoring = CLASSIFY.scoring
    assert scoring.baselines is not None
    assert scoring.gain is not None
    training = records(*["A/B", "Not Funny"] * 20)
    blind = scoring.baselines(some, training)
    scores = scoring.score(predicted, some, blind)
    assert scores.items == 3
    assert scores["accuracy"].value == pytest.approx(100 / 3)
    assert scores["AUROC"].value == 50  # 0.4 is above 0.1 and below 0.7
    assert scores["AUROC"].low is not None
    assert scores["AUROC"].low <= 50 <= (scores["AUROC"].high or 0)
    assert scores["AUROC"].blind == 50, "one text for all"
    assert blind.predicted is not None
    gain = scoring.gain(blind.predicted, predicted, some)
    assert (gain.name, gain.value) == ("accuracy", pytest.approx(-100 / 3))
    assert scoring.baselines(some, []).blind == {"accuracy": 1 / 2}
    same = scoring.score(predicted, some[1:3], None)
    assert [one.name for one in same.scores] == ["accuracy"]
    assert "AUROC is left out: it needs at least two labels" in same.notes


def test_words_that_name_the_label_are_a_strong_blind_baseline() -> None:
    nice, sad = records("Nice!", *["Nice!"] * 9), records(*["Sad?"] * 10, text="how sad")
    training = [replace(one, key=f"{at}") for at, one in enumerate(nice + sad)]
    scored = [nice[0], Record("s", more={"classify": (TaskItem("s0", "how sad", ("Sad?",)),)})]
    assert CLASSIFY.scoring.baselines is not None
    blind = CLASSIFY.scoring.baselines(scored, training)
    assert blind.blind == {"accuracy": 1, "AUROC": 1}
    assert "“Nice!” to all texts" in " ".join(blind.notes)


def test_unknown_labels_are_no_samples_and_no_list_is_refused() -> None:
    task = CLASSIFY.build(TaskOptions(TOKENS, Answers(("A/B", "Not Funny"), task="classify")))
    some = records("Not Funny", "other", None)
    assert [sample.truth for one in some for sample in task.samples(one)] == [{"class": 1}]
    assert sum(len(task.queries(one)) for one in some) == 3
    with pytest.raises(DataError, match="this model has no labels; fine-tune it: diptych finetune classify"):
        CLASSIFY.build(TaskOptions(TOKENS))


@pytest.mark.learns
def test_a_classifier_of_ones_own_learns_and_has_its_own_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    def least(chances: Any, right: Any) -> float:
        return min(float(np.mean(chances.argmax(1)[right == one] == one)) for one in set(right))

    worst = Metric("worst class", least)
    spec = classifier(
        "mood", title="Mood", learns="name a mood", verb="mood", help="Name a mood.", does="names moods",
        metrics=(worst, AUROC),
    )  # fmt: skip
    added(monkeypatch, lambda: add_task(spec))
    moods = [
        replace(one, more={"mood": (TaskItem(one.key, "how does it feel", (f"mood {n % 3}",)),)})
        for n, one in enumerate(EIGHT)
    ]
    case = Case.of("image-bert/small/mood", moods)
    check_overfit(case)
    assert case.scores() == {"worst class": 100, "AUROC": 100}
