"""The tables of docs/results/mining_web.md, at a size of seconds: every bar that the issue of mining sets for rules."""

from pathlib import Path
from typing import Any

import pytest

from diptych_mine import funnel
from diptych_mine.layout import RunLayout
from experiments import mining_web


@pytest.mark.parametrize("held_out", [False, True])
def test_rules_meet_their_bars_on_pages_of_both_halves_of_the_templates(
    small_web: Path, mined: tuple[Path, dict[str, Any]], held_out: bool
) -> None:
    truth = mining_web.truth_of(small_web)
    rows = list(funnel.decisions(RunLayout(mined[0])))
    leading = mining_web.dominant(rows, truth, held_out)
    assert leading["pictures"] > 10
    assert leading["precision"] >= 95
    assert leading["recall"] >= 90
    told = mining_web.language(rows, truth, held_out)
    assert told["foreign_pages"] > 0
    assert told["foreign_found"] >= 98
    assert told["english_lost"] <= 2
    by_key = {(row["page"], row["address"]): row for row in rows}
    texts = mining_web.texts(by_key, truth, held_out)
    assert {name: one["precision"] for name, one in texts.items() if one["precision"] < 95} == {}


def test_rules_of_pictures_are_exact(small_web: Path, mined: tuple[Path, dict[str, Any]]) -> None:
    by_key = {(row["page"], row["address"]): row for row in funnel.decisions(RunLayout(mined[0]))}
    found = mining_web.exact(by_key, mining_web.truth_of(small_web))
    assert sum(one["of"] for one in found.values()) > 3
    assert all(one["found"] == one["of"] and one["false"] == 0 for one in found.values())


def test_near_copies_are_found_and_no_others() -> None:
    found = mining_web.copies(0, 80)
    assert found["copies"] > 0
    assert (found["copies_found"], found["false_pairs"]) == (100, 0)
