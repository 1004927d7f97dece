"""What a test adds to the tables of systems and tasks leaves them after it."""

from collections.abc import Callable
from typing import Any

import pytest

from diptych.models import HEADS
from diptych.systems import OBJECTIVES, RECIPES, SYSTEMS
from diptych.tasks import TASKS


def added(patch: pytest.MonkeyPatch, add: Callable[[], None]) -> None:
    known: tuple[dict[str, Any], ...] = (SYSTEMS, TASKS, OBJECTIVES, RECIPES, HEADS)
    before = [set(table) for table in known]
    add()
    for table, names in zip(known, before, strict=True):
        for name in table.keys() - names:
            patch.setitem(table, name, table.pop(name))
