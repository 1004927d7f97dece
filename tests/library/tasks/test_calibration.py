"""The probability of an answer is calibrated by a temperature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.core import Question, Record, Regions, collate
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import CheckpointError
from diptych.tasks.answers import FILE, Answers
from diptych.tasks.calibration import calibration_error, fit_temperature, unsure
from diptych.tasks.vqa import VQA, AskRequest, GivenAnswer, Vqa, calibrate

ANSWERS = Answers(("<unk>", "red", "blue", "green"))
TASK = Vqa(Tokens.train(["what colour is the dog"], 60), ANSWERS, form="softmax")


def test_the_error_by_hand() -> None:
    probabilities, right = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.1]), torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    assert calibration_error(probabilities, right) == pytest.approx((4 * 0.4 + 0.1) / 5)
    assert calibration_error(torch.ones(3), torch.ones(3)) == 0


def test_logits_that_are_three_times_too_large_are_divided_by_three() -> None:
    drawn = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, generator=drawn)
    right = (torch.rand(20_000, generator=drawn) < logits.sigmoid()).float()
    found = fit_temperature(lambda t: (3 * logits / t).sigmoid(), right)
    assert found.temperature == pytest.approx(3, rel=0.05)
    assert found.before > 10
    assert found.after < 1.5
    assert found.questions == 20_000


def records(count: int) -> list[Record]:
    given = ("red",), ("blue",)
    return [Record(str(n), questions=(Question(str(n), "what?", given[n % 2]),)) for n in range(count)]


def test_answers_of_val_are_calibrated_on_what_is_shown() -> None:
    """Every answer is a sure `red`, and every second one is right: the calibrated probability is one half."""

    def predict(task: Any) -> list[dict[str, Any]]:
        assert isinstance(task, Vqa)
        row = torch.tensor([-torch.inf, 4.0, 1.0, 1.0])
        return [{"key": str(n), "logits": row} for n in range(200)]

    found = calibrate(TASK, predict, records(200))
    assert found is not None
    shown = (torch.tensor([4.0, 1.0, 1.0]) / found.temperature).softmax(0)[0]
    assert float(shown) == pytest.approx(0.5, abs=0.02)
    assert found.before == pytest.approx(100 * (float(torch.tensor([4.0, 1, 1]).softmax(0)[0]) - 0.5), abs=0.1)
    assert calibrate(TASK, predict, records(99)) is None


def test_a_temperature_that_worsens_the_error_is_not_kept() -> None:
    """Of 20 answers at 0.998, 16 are right, of 80 at 0.79, 64: cross-entropy prefers 2.24, with an error of 15.4."""
    logits = torch.tensor([6.0] * 20 + [1.3] * 80)
    right = torch.tensor([1.0] * 16 + [0.0] * 4 + [1.0] * 64 + [0.0] * 16)
    found = fit_temperature(lambda t: (logits / t).sigmoid(), right)
    assert found.temperature == 1
    assert found.after == found.before == pytest.approx(5.08, abs=0.01)


def test_answers_are_unsure_up_to_the_limit_where_they_are_more_often_wrong() -> None:
    """Worked by hand: above 0.4 two right answers of three, above 0.2 three of five, above 0.1 three of six."""
    probabilities = torch.tensor([0.9, 0.8, 0.6, 0.4, 0.4, 0.2, 0.1])
    right = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    assert unsure(probabilities, right) == pytest.approx(0.6)
    assert unsure(probabilities, torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.2)
    assert unsure(probabilities, torch.zeros(7)) == 1
    assert unsure(probabilities, torch.ones(7)) == 0
    assert unsure(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])) == 1  # one side holds equal probabilities


@pytest.mark.parametrize(("sure", "line"), [(False, "red (not sure)"), (True, "red"), (None, "red")])
def test_an_answer_that_is_not_sure_says_so(sure: bool | None, line: str) -> None:
    interface, request = VQA.required_interface, AskRequest(question="what?")
    message = GivenAnswer(
        picture="x.png", precision="fp32", question="what?", answer="red", probability=0.1, others=(), sure=sure
    )
    assert interface.lines is not None
    assert (*interface.lines(message, True), *interface.lines(message, False)) == (line, f"what? {line}")
    view = interface.build_view(request, message)
    assert (view.summary, view.words, bool(view.notes)) == (f"what? {line}", "red", sure is False)


class Fixed:
    """A model with the same logits for every question."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.heads = {"answer": lambda states: logits}

    def __call__(self, batch: Any) -> None: ...


def test_the_temperature_changes_the_probability_and_not_the_answer() -> None:
    logits, one = torch.tensor([[-torch.inf, 2.0, 0.0, -1.0]]), torch.zeros(1, 4)
    seen = replace(records(1)[0], regions=Regions(one, torch.ones(1), (9, 9), features=one))
    batch, model = collate(TASK.queries(seen)), Fixed(logits)
    plain, warm = (
        replace(TASK, answers=replace(ANSWERS, temperature=t)).likeliest(model, batch, 2)[0] for t in (1.0, 4.0)
    )
    assert plain[0] == ("red", pytest.approx(float(logits[0, 1:].softmax(0)[0])))
    assert warm[0] == ("red", pytest.approx(float((logits[0, 1:] / 4).softmax(0)[0])))


def test_it_is_kept_with_the_answers(tmp_path: Path) -> None:
    for temperature in (1.0, 1.5):
        replace(ANSWERS, temperature=temperature).save(tmp_path)
        assert Answers.load(tmp_path) == replace(ANSWERS, temperature=temperature)
    replace(ANSWERS, sure_above=0.25).save(tmp_path)
    assert Answers.load(tmp_path).sure_above == 0.25
    for damaged in (
        ', "temperature": 1, "sure_above": 2',
        ', "temperature": 0',
        "",
        ', "temperature": "x"',
        ', "temperature": NaN',
    ):
        (tmp_path / FILE).write_text(f'{{"names": ["a", "b"]{damaged}}}')
        with pytest.raises(CheckpointError, match="is not a list of answers"):
            Answers.load(tmp_path)
