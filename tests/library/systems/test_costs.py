"""What rows of the papers' tables cost."""

import json
from pathlib import Path

import pytest

from diptych.systems import SYSTEMS, find_stages, papers
from diptych.systems.catalogue import row_cost, row_to_json, rows
from diptych.systems.costs import RATES, cost_of
from diptych.systems.ledger import ledger_rows

ROOT = Path(__file__).parents[3]


def test_rates_are_those_that_were_measured() -> None:
    steps = json.loads((ROOT / "benchmarks/results/gpu.json").read_text("utf-8"))["figures"]
    measured = steps["a pre-training step, bf16"]
    found = {SYSTEMS[name].title: rate for name, rate in RATES.items()}
    assert found == {name: of["samples a second"] * of["positions"] for name, of in measured.items()}


@pytest.mark.parametrize(
    ("name", "millions", "hours"),
    [
        ("unified-vlp/pretrain", 89.6, 7.9),  # 175,000 steps of 512, 123 positions at 2,800 x 139 / 123 a second
        ("image-bert/pretrain/lait-then-cc+sbu", 306.0, 30.2),  # with two mismatched pairs for each
        ("image-bert/retrieval", 75.4, 7.4),  # groups of four
        ("tden/vcr", 34.0, 16.1),  # four choices of up to 166 positions
    ],
)
def test_samples_and_hours_by_hand(name: str, millions: float, hours: float) -> None:
    cost = cost_of(find_stages(name).recipes)
    assert (round(cost.samples / 1e6, 1), round(cost.hours, 1)) == (millions, hours)
    assert not cost.unmeasured


def test_what_was_not_measured_has_no_hours() -> None:
    for name in ("xgpt/pretrain", "vl-bert/pretrain", "unified-vlp/scst"):
        cost = cost_of(find_stages(name).recipes)
        assert (cost.hours, cost.unmeasured) == (0, (name,))
        assert str(cost).endswith(f"not measured: {name}")


def test_a_row_stops_where_its_command_stops() -> None:
    """Table 5 of Unified VLP: 117,000 of 175,000 steps."""
    costs = {row_cost(row).samples for row in rows(5, system="unified-vlp")}
    assert costs == {117_000 * 512}
    assert "59.9 M samples of at most 123 positions, 5.3 h on one H100" in row_to_json(rows(5)[0])["cost"]


def test_every_row_with_recipes_has_a_cost() -> None:
    own = [row for row in ledger_rows(papers()) if row.row.recipes]
    assert len(own) > 80
    assert all(row_cost(row).samples > 1e6 for row in own)
