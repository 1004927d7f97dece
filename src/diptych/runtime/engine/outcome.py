"""The result or the error of a shard, as data. Ray and process pools wrap exceptions, and would lose their fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diptych.runtime.errors import DiptychError

Counts = dict[str, Any]
Work = Callable[[str], Counts]


@dataclass(frozen=True)
class Outcome:
    counts: Counts | None = None
    error: str | None = None
    exit_code: int = 1


def outcome_of(work: Work, name: str) -> Outcome:
    """Return the result of `work(name)`, or the DiptychError that it raises, as data."""
    try:
        return Outcome(work(name))
    except DiptychError as error:
        return Outcome(error=str(error), exit_code=error.exit_code)


def counts_of(outcome: Outcome) -> Counts:
    """Return the counts of a shard. If it failed, raise its error, with the same exit code."""
    if outcome.counts is None:
        error = DiptychError(outcome.error or "a shard failed")
        error.exit_code = outcome.exit_code
        raise error
    return outcome.counts
