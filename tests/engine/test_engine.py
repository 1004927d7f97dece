"""Shards on engines: results in the order of their names, errors with their exit codes."""

import os

import pytest

from diptych.engine import Counts, quiet, run
from diptych.engine.outcome import counts_of, outcome_of
from diptych.errors import DiptychError, RecipeError


def length(name: str) -> Counts:
    return {"name": name, "length": len(name)}


def fails(name: str) -> Counts:
    raise RecipeError(f"{name} cannot be; give another")


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_names(workers: int) -> None:
    names = ["ccc", "a", "bb"]
    assert [one["name"] for one in run(length, names, "local", workers)] == names
    assert list(run(length, [], "local", workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_shard_raises_is_raised_here(workers: int) -> None:
    with pytest.raises(RecipeError, match="a cannot be"):
        list(run(fails, ["a"], "local", workers))


def test_an_error_goes_through_an_engine_as_data() -> None:
    assert counts_of(outcome_of(length, "ab")) == {"name": "ab", "length": 2}
    with pytest.raises(DiptychError, match="a cannot be") as raised:
        counts_of(outcome_of(fails, "a"))
    assert raised.value.exit_code == RecipeError.exit_code


def test_an_engine_that_is_none_is_named() -> None:
    with pytest.raises(RecipeError, match="did you mean local"):
        list(run(length, ["a"], "locl"))


def test_nothing_is_reported_to_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DO_NOT_TRACK", "DAFT_ANALYTICS_ENABLED", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    quiet()
    assert [os.environ[n] for n in ("DO_NOT_TRACK", "DAFT_ANALYTICS_ENABLED", "RAY_USAGE_STATS_ENABLED")] == [
        "1",
        "0",
        "0",
    ]
