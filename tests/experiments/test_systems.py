"""Rounds of `experiments.systems`: kept by the key of their recipes, and what the table makes of them."""

from dataclasses import asdict

import pytest

from diptych.systems import SYSTEMS
from experiments import systems
from experiments.claims.arms import Place, key_of
from experiments.systems import TASKS, Round, arms, kept, table

PLACE = Place((("detected", "store"),), "runs")


def _round(seed: int, value: float) -> Round:
    arm = next(arm for row, system, arm in arms(list(SYSTEMS), list(TASKS)) if (row, system) == ("vqa", "xgpt"))
    figure = {"value": value, "low": value - 1, "high": value + 1, "blind": 30.0}
    return Round(key_of(arm.last, seed, PLACE), "vqa", "xgpt", seed, {"accuracy": figure})


def test_a_round_is_kept_while_its_recipes_are_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [_round(0, 80.0), _round(1, 84.0)]
    saved = [asdict(one) for one in rounds]
    assert list(kept(saved, PLACE)) == rounds
    assert not list(kept([asdict(rounds[0]) | {"row": "a row of before"}], PLACE))
    monkeypatch.setitem(TASKS, "vqa", (TASKS["vqa"][0] + 1, TASKS["vqa"][1]))
    assert not list(kept(saved, PLACE))


def test_the_table_is_of_seeds_and_of_one_seed_its_own_interval() -> None:
    rounds = [_round(0, 80.0), _round(1, 84.0), _round(2, 85.0)]
    spread = {"value": 83.0, "low": 80.0, "high": 85.0, "seeds": 3, "blind": 30.0}
    assert table(rounds) == {"vqa": {"xgpt": {"accuracy": spread}}}
    assert table(rounds[:1])["vqa"]["xgpt"]["accuracy"] == rounds[0].scores["accuracy"]


def test_the_committed_table_is_that_of_its_rounds() -> None:
    figures = systems.committed()
    rounds = [Round(**one) for one in figures.pop("rounds")]
    assert table(rounds) == {row: cells for row, cells in figures.items() if row != "pre-training steps"}
