"""One kill of a run that fetches; `python -m tests.attack.mining` makes five in every stage."""

from __future__ import annotations

import pytest

from tests.attack.mining import attempts


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_as_it_fetches_asks_for_nothing_twice_that_was_whole() -> None:
    ((_, how, far),) = attempts(36, 1, ("index",))
    assert how is None, f"{how} ({far})"
