"""What a shard's function returned or raised, as data: engines wrap exceptions, and lose their fields."""

from __future__ import annotations

from dataclasses import dataclass

from diptych.engine import Counts, Work
from diptych.errors import DiptychError


@dataclass(frozen=True)
class Told:
    counts: Counts | None = None
    error: str | None = None
    exit_code: int = 1


def told(work: Work, name: str) -> Told:
    """Never raises what Diptych raises on purpose."""
    try:
        return Told(work(name))
    except DiptychError as error:
        return Told(error=str(error), exit_code=error.exit_code)


def heard(one: Told) -> Counts:
    if one.counts is None:
        error = DiptychError(one.error or "a shard failed")
        error.exit_code = one.exit_code
        raise error
    return one.counts
