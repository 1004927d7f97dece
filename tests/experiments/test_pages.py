"""Pages from results: what is bold, what is at chance, what is held against it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import of_score
from diptych import systems
from diptych.metrics.bootstrap import Interval
from diptych.tasks.scores import Score
from experiments import papers
from experiments.figures import of_interval
from experiments.pages import results, speed
from experiments.tables import Column, Pivot, at_chance, in_full, number, whole

FIGURES = {
    "steps": 800,
    "vqa": {
        "tden": {"accuracy": {"value": 59.2, "blind": 33.8}},
        "vl-bert": {"accuracy": {"value": 34.9, "blind": 33.8}},
        "xgpt": {"accuracy": {"value": 59.2, "blind": 33.8}},
    },
    "speed": {"tden": {"seconds": 2.0}, "xgpt": {"seconds": 1.25}},
}


def test_a_pivot_by_hand() -> None:
    columns = (Column(("vqa", "accuracy"), "VQA"), Column(("speed", "seconds"), "s", best="min"))
    table = Pivot(("system",), (1,), columns, {"vl-bert": "VL-BERT", "tden": "TDEN", "xgpt": "XGPT"}).table(FIGURES)
    assert table == [
        "| system | VQA | s |",
        "|---|---|---|",
        "| VL-BERT | 34.9 † | – |",
        "| TDEN | **59.2** | 2.0 |",
        "| XGPT | **59.2** | **1.25** |",
        "| Blind | 33.8 | – |",
    ]


def test_the_best_is_of_its_group_and_a_gain_is_not_compared() -> None:
    spread = {"low": 1.0, "high": 9.0, "seeds": 3}
    arms = {"scratch": {"CIDEr": {"value": 5.0, **spread}}, "gain of it": {"CIDEr": {"value": 90.0}}}
    more = {"scratch": {"CIDEr": {"value": 50.0}}, "pre-trained": {"CIDEr": {"value": 60.0, "low": 6.5, "high": 7.0}}}
    figures = {"100": arms | {"pre-trained": {"CIDEr": {"value": 4.0, **spread | {"seeds": 1}}}}, "300": more}
    table = Pivot(("labels", "arm"), (0, 1), (Column(("CIDEr",), "CIDEr"),), {}).table(figures)
    assert table[2:] == [
        "| 100 | scratch | **5.0** (1.0 to 9.0) |",
        "| 100 | gain of it | 90.0 |",
        "| 100 | pre-trained | 4.0 |",
        "| 300 | scratch | 50.0 |",
        "| 300 | pre-trained | **60.0** (6.5 to 7.0) |",
    ]


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        ({"value": 54.0, "low": 51.9, "high": 56.0, "blind": 52.0}, True),
        ({"value": 53.0, "low": 52.1, "high": 54.0, "blind": 52.0}, False),
        ({"value": 53.9, "blind": 52.0}, True),
        ({"value": 54.0, "blind": 52.0}, False),
        ({"value": 60.0, "low": 50.0, "high": 70.0, "seeds": 3, "blind": 52.0}, False),  # one run of three was
        ({"value": 1.0}, False),
        (7, False),
    ],
)
def test_at_chance(figure: Any, told: bool) -> None:
    assert at_chance(figure) is told


def test_a_column_without_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no figure at vqa / accurcy; correct the column's path"):
        Pivot(("system",), (1,), (Column(("vqa", "accurcy"), "VQA"),), {}).table(FIGURES)


def test_all_figures_of_a_file() -> None:
    assert whole({**FIGURES, "rounds": [1, 2]}, 2) == [
        *("|  | value |", "|---|---|", "| steps | 800 |", ""),
        *("## vqa", "", "|  | accuracy |", "|---|---|"),
        *("| tden | 59.2 (blind 33.8) |", "| vl-bert | 34.9 (blind 33.8) |", "| xgpt | 59.2 (blind 33.8) |", ""),
        *("## speed", "", "|  | seconds |", "|---|---|", "| tden | 2.0 |", "| xgpt | 1.25 |", ""),
    ]


def test_parts_without_names_in_common_are_tables_of_their_own() -> None:
    told = whole({"a": {"pairs": 1, "R@1": 2.5}, "b": {"words": 3}, "c": {"pairs": 4}}, 2)
    assert told[:4] == ["|  | pairs | R@1 |", "|---|---|---|", "| a | 1 | 2.5 |", "| c | 4 | – |"]
    assert told[5:] == ["| b | value |", "|---|---|", "| words | 3 |", ""]


def test_a_figure_in_full() -> None:
    assert in_full({"value": 12.0, "low": 11.0, "high": 13.4, "seeds": 3, "blind": 3.1, "ceiling": 40.2}) == (
        "12.0 (11.0 to 13.4, 3 seeds; blind 3.1, ceiling 40.2)"
    )
    assert [number(value) for value in (3, 3.0, 0.00025, 1.7543, 58221.2, [1.5, 2], "tden")] == [
        "3", "3.0", "0.00025", "1.754", "58221", "1.5, 2", "tden",
    ]  # fmt: skip


def test_a_score_is_kept_as_numbers() -> None:
    score = Score("CIDEr", 100.04, 90.06, 110.0, blind=17.0, ceiling=None)
    assert of_score(score.to_json()) == {"value": 100.0, "low": 90.1, "high": 110.0, "blind": 17.0}
    assert of_score(Score("SPICE", 20.0).to_json()) == {"value": 20.0}
    assert of_interval(Interval(5.04, 4.0, 6.0)) == {"value": 5.0, "low": 4.0, "high": 6.0}


def test_one_page_is_not_of_two_results(tmp_path: Path) -> None:
    for folder in ("benchmarks", "experiments"):
        (tmp_path / folder / "results").mkdir(parents=True)
        (tmp_path / folder / "results" / "twice.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match=r"two results would have the page docs/results/twice\.md; rename one of them"):
        results(tmp_path)


def test_a_row_s_cost_names_its_stores_and_their_size() -> None:
    """CC: 3,334,173 images of 730 kB; VL-BERT reads the images themselves, at a rate that was not measured."""
    pages = {paper.system: "\n".join(papers._costs(paper)) for paper in systems.papers()}
    assert "| 59.9 | 123 | 5.3 |  | 2.43 | CC-X101, UNILM, VOCAB |" in pages["unified-vlp"]
    rows = [line for line in pages["vl-bert"].splitlines() if "CC-OVER50" in line]
    assert rows
    assert all("| – | `vl-bert/pretrain`" in row and "| – | CC-OVER50" in row for row in rows)


def test_the_table_of_speed_by_hand() -> None:
    result = {"date": "2026-11-30", "commit": "abc", "machine": {"amx": False, "instructions": "AVX2"}}
    found = {
        "a": result | {"figures": {"rates": {"ours": 30, "theirs": 12, "copy": 40}}},
        "b": result | {"figures": {"over import": 1.6}, "machine": {"amx": True}},
        "c": result | {"figures": {"share": 0.5}, "machine": {"amx": False}, "commit": "d with changes"},
    }
    rows = """
    a | Reading | theirs | rates / ours : rates / theirs | a copy | rates / ours : rates / copy
    b | Start | | | `import` | 1 : over import
    c | Mining | old | share | |
    """
    assert list(speed(rows, found)) == [
        "| work | peer | ratio | floor | processor | date | commit |",
        "|---|---|---|---|---|---|---|",
        "| [Reading](a.md) | theirs | 2.5 | 0.75 (a copy) | AVX2 | 2026-11-30 | abc |",
        "| [Start](b.md) | – | – | 0.62 (`import`) | AMX | 2026-11-30 | abc |",
        "| [Mining](c.md) | old | 0.5 | – | no AMX | 2026-11-30 | d, changed |",
    ]
    with pytest.raises(KeyError, match="sharre"):
        list(speed("c | Mining | old | sharre | |", found))
