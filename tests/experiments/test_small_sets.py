"""Studies of small sets of photographs."""

from types import SimpleNamespace
from typing import Any

import pytest

from experiments import small_sets
from experiments.small_sets import QUERIES, Study


@pytest.mark.parametrize(
    ("task", "head", "queries"),
    [("retrieval", "match", QUERIES), ("retrieval", "similarity", None), ("caption", "word", None)],
)
def test_only_a_search_pair_by_pair_is_limited(
    task: str, head: str, queries: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`score_model` refuses such a limit for a model that searches by vectors."""
    asked: list[Any] = []

    def score(*_: object, extent: Any) -> tuple[list[Any], Any]:
        asked.append(extent)
        return [], SimpleNamespace(scores=[])

    monkeypatch.setattr(small_sets, "score_model", score)
    monkeypatch.setattr(small_sets, "Store", lambda path: path)
    model: Any = SimpleNamespace(architecture=SimpleNamespace(heads=(head,)))
    assert Study(task, "store", "out")._scores(model) == {}
    assert [extent and extent.queries for extent in asked] == [queries]
