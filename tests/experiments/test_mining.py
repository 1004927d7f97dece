"""Figures of what mining is worth, by hand: ranks in, recalls, gains and the way from raw pairs to true ones out."""

from __future__ import annotations

from typing import Any

import pytest

from diptych.metrics.retrieval import RECALLS
from experiments.mining import figures

ARMS = ("nothing", "raw", "mined", "oracle")


def row(arm: str, right: int, of: int = 40) -> dict[str, Any]:
    """The first `right` pictures find theirs at once, both ways; the others at place 20."""
    found = [[asks, f"p{n}", 0 if n < right else 20] for asks in RECALLS for n in range(of)]
    return {"arm": arm, "seed": 0, "found": found}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    right = {"nothing": 4, "raw": 8, "mined": 26, "oracle": 32}
    return figures({(arm, 0): row(arm, count) for arm, count in right.items()}, [0], ARMS)


def test_recalls_and_gains_are_of_pictures(found: dict[str, Any]) -> None:
    assert {arm: found["recall"][arm]["image retrieval R@1"]["value"] for arm in ARMS} == {
        "nothing": 10.0, "raw": 20.0, "mined": 65.0, "oracle": 80.0
    }  # fmt: skip
    gain = found["gains"]["mined minus raw"]["text retrieval R@1"]
    assert gain["value"] == 45.0
    assert 0 < gain["low"] < 45.0 < gain["high"]
    assert "mined minus fewer" not in found["gains"]


def test_the_way_from_raw_to_true_captions_is_a_share_of_what_there_is(found: dict[str, Any]) -> None:
    assert found["percent of the way from raw to oracle"] == dict.fromkeys(found["recall"]["raw"], 75)
    flat = figures({(arm, 0): row(arm, 8) for arm in ARMS}, [0], ARMS)
    assert flat["percent of the way from raw to oracle"] == {}


def test_rounds_have_no_ranks(found: dict[str, Any]) -> None:
    assert found["rounds"] == [{"arm": arm, "seed": 0} for arm in ARMS]
