"""Curves of runs: what is averaged, which charts there are, and what cannot be drawn."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from diptych.runs.plots import charts, find_runs, write_plot
from diptych.runs.reports.charts import draw
from diptych.runtime.errors import DataError, RecipeError


def logged(folder: Path, losses: list[dict[str, float]], cider: float = 50.0) -> Path:
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [
        {"step": 10 * number, "losses": found, "total": sum(found.values()), "lr": 1e-3 / number,
         "gradient_norm": 2.0, "samples_per_second": 30.0}
        for number, found in enumerate(losses, start=1)
    ]  # fmt: skip
    lines[-1]["validation"] = {"CIDEr": cider, "BLEU-4": float("nan")}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 99, "los')  # a kill cut it short
    return folder


def test_losses_are_means_of_what_came_before(tmp_path: Path) -> None:
    run = logged(tmp_path / "one", [{"word": value} for value in (6.0, 4.0, 2.0, 0.0)])
    loss, cider, *course = charts({"one": run}, smooth=2)
    assert loss.curves[0].points == ((10, 6), (20, 5), (30, 3), (40, 1))
    assert (loss.title, loss.y) == ("word", "loss, mean of 2 logged steps"), (
        "a run without a recipe has the log's names"
    )
    assert (cider.title, cider.curves[0].points) == ("CIDEr", ((40, 50.0),)), "a score that is not a number is left out"
    assert [chart.title for chart in course] == ["learning rate", "gradient norm", "samples a second"]
    assert charts({"one": run}, smooth=1)[0].curves[0].points[1] == (20, 4)


def test_scores_by_epoch_are_a_drawing_and_a_file(tmp_path: Path) -> None:
    """Runs of other batch sizes have their epochs in common, not their steps."""
    for name, steps in {"small": 4, "large": 2}.items():
        (tmp_path / name).mkdir()
        lines = [{"step": n * steps, "epoch": n, "total": 1.0, "validation": {"CIDEr": 10 * n}} for n in (1, 2)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [tmp_path / "small", tmp_path / "large"]
    loss, cider = write_plot(runs, tmp_path / "figure.csv", 1, x="epoch")
    assert [curve.points for curve in cider.curves] == [((1, 10), (2, 20))] * 2
    assert (loss.x, cider.x) == ("epoch", "epoch")
    rows = list(csv.DictReader((tmp_path / "figure.csv").read_text().splitlines()))
    assert [(row["run"], row["epoch"]) for row in rows if row["name"] == "CIDEr"] == [
        ("small", "1"), ("small", "2"), ("large", "1"), ("large", "2")
    ]  # fmt: skip


@pytest.mark.parametrize("epoch", [{}, {"epoch": -1}, {"epoch": 1e99}, {"epoch": "two"}])
def test_a_log_without_epochs_is_drawn_by_steps_alone(tmp_path: Path, epoch: dict[str, Any]) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "total": 1.0, **epoch}) + "\n")
    with pytest.raises(DataError, match=r"metrics.jsonl has no epochs: draw this run by steps, without --by-epoch"):
        write_plot([tmp_path], tmp_path / "plot.svg", 1, x="epoch")
    assert write_plot([tmp_path], tmp_path / "plot.svg", 1)


def test_a_score_of_nearly_0_is_0(tmp_path: Path) -> None:
    lines = [{"step": step, "total": 1.0, "validation": {"BLEU-3": 4.2e-5}} for step in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bleu = charts({"one": tmp_path}, 1)[1]
    assert draw(bleu).lines[0].value == "0"


def test_runs_of_several_objectives_stand_beside_each_other(tmp_path: Path) -> None:
    runs = find_runs([logged(tmp_path / "a", [{"word": 1.0, "region": 2.0}]), logged(tmp_path / "b", [{"word": 3.0}])])
    made = {chart.title: [curve.name for curve in chart.curves] for chart in charts(runs, 20)}
    both = ["a", "b"]
    assert made["word"] == made["CIDEr"] == both
    assert made["sum of 2 losses"] == made["region"] == both[:1]
    assert "loss" not in made


def test_losses_of_different_kinds_have_no_axis_in_common(tmp_path: Path) -> None:
    parts: list[dict[str, float]] = [
        {"masked_language": 20.0, "matching": 5.0}, {"masked_language": 2.0, "masked_regions": 1.0},
        {"match_binary": 0.05}, {"generate_text": 2.0, "generate_text/2": 1.0},
    ]  # fmt: skip
    runs = {str(number): logged(tmp_path / str(number), [one]) for number, one in enumerate(parts)}
    losses = [chart for chart in charts(runs, 1) if chart.y == "loss"]
    sums = {chart.about: [curve.name for curve in chart.curves] for chart in losses if chart.title == "sum of 2 losses"}
    assert sums == {
        "weighted: masked_language, matching": ["0"], "weighted: masked_language, masked_regions": ["1"],
        "weighted: generate_text, generate_text, pass 2": ["3"],
    }  # fmt: skip
    alone = {chart.title: [curve.name for curve in chart.curves] for chart in losses if chart.title[:3] != "sum"}
    assert alone["masked_language"] == ["0", "1"]
    assert alone["match_binary"] == ["2"]


def test_losses_have_plain_names_and_are_explained(tmp_path: Path) -> None:
    from diptych.systems import find_recipe

    of = {
        "unified-vlp/small/caption": {"masked_queries": "next words"},
        "unified-vlp/small/retrieval": {"match_binary": "ranked pairs"},
        "unified-vlp/small/scst": {"self_critical": "rewarded captions"},
        "image-bert/small/pretrain": {"masked_language": "masked words", "matching": "matching pairs"},
        "tden/small/pretrain": {"generate_text": "next words, by a decoder"},
    }
    for number, (name, names) in enumerate(of.items()):
        run = logged(tmp_path / str(number), [dict.fromkeys(names, 1.0)])
        find_recipe(name).save(run)
        made = {chart.title.lower(): chart.about for chart in charts({"a": run}, 1) if chart.y == "loss"}
        for plain in names.values():
            assert made[plain].lower().startswith(f"{plain}: "), made
        write_plot([run], tmp_path / "plot.html", 1)
        assert all(about in (tmp_path / "plot.html").read_text() for about in made.values())


def test_the_table_of_the_documentation_is_what_the_objectives_state() -> None:
    import diptych.objectives

    page = (Path(__file__).parents[3] / "docs" / "objectives.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| ([^|]+ \| [^|]+) \|$", page, re.MULTILINE))
    for kind in vars(diptych.objectives).values():
        name = getattr(kind, "name", None)
        if isinstance(name, str) and isinstance(kind, type):
            assert rows[name].replace(" | ", ": ") == (kind.__doc__ or "").partition("\n")[0], name
    assert {"match_binary", "match_choice", "match_triplet"} <= rows.keys()


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    run = logged(tmp_path / "long", [{"word": float(number)} for number in range(2502)])
    points = charts({"long": run}, 1)[0].curves[0].points
    assert len(points) <= 1001
    assert points[-1] == (25020, 2501.0)


def test_stages_and_model_folders_lead_to_runs(tmp_path: Path) -> None:
    for name in ("stage-1", "stage-2"):
        logged(tmp_path / "staged" / name, [{"word": 1.0}])
    (tmp_path / "staged/stage-2/model").mkdir()
    assert list(find_runs([tmp_path / "staged"])) == ["stage-1", "stage-2"]
    assert list(find_runs([tmp_path / "staged/stage-2/model"])) == ["stage-2"]


def test_names_are_as_short_as_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [logged(tmp_path / name, [{"word": 1.0}]) for name in ("x/caption", "x/scst", "y/caption")]
    assert list(find_runs(runs[:1])) == ["caption"]
    assert list(find_runs(runs[:2])) == ["caption", "scst"]
    assert list(find_runs(runs)) == ["x/caption", "x/scst", "y/caption"]
    monkeypatch.chdir(tmp_path / "x")
    assert list(find_runs([Path("caption"), runs[2]])) == ["x/caption", "y/caption"]


def test_a_log_axis_has_equal_steps_for_equal_ratios(tmp_path: Path) -> None:
    run = logged(tmp_path / "run", [{"word": value} for value in (100.0, 10.0, 1.0)])
    loss, cider, *_ = (draw(chart) for chart in charts({"run": run}, 1, log=True))
    heights = [float(point.split(",")[1]) for point in loss.lines[0].points.split()]
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)
    assert [tick.label for tick in loss.up] == ["1", "2", "5", "10", "20", "50", "100"]
    assert (loss.title, loss.y) == ("word", "loss, log axis")
    assert cider.y == "CIDEr of the validation"
    run = logged(tmp_path / "zero", [{"word": value} for value in (1.0, 0.0)])
    assert draw(charts({"run": run}, 1, log=True)[0]).y == "loss", "0 has no logarithm"


def test_values_are_shown_over_the_curve(tmp_path: Path) -> None:
    runs = [logged(tmp_path / "a", [{"word": 2.5}, {"word": 1.25}]), logged(tmp_path / "b", [{"word": 3.0}] * 500)]
    write_plot(runs, tmp_path / "plot.html", 1)
    page = (tmp_path / "plot.html").read_text()
    assert "<title>a, step 20: 1.25</title>" in page
    assert "<title>b, step 10: 3</title>" in page
    assert page.count("<title>b, step") < 5 * 61, "a long curve has a sample of its values"
    write_plot(runs, tmp_path / "plot.svg", 1)
    assert "<title>a, step 20: 1.25</title>" in (tmp_path / "plot.svg").read_text()


def test_a_table_holds_every_logged_value(tmp_path: Path) -> None:
    runs = [logged(tmp_path / "a,b", [{"word": 2.5}, {"word": 1.25}]), logged(tmp_path / "c", [{"word": 3.0}])]
    write_plot(runs, tmp_path / "plot.csv", 20)
    rows = list(csv.reader((tmp_path / "plot.csv").read_text().splitlines()))
    assert rows[0] == ["run", "name", "step", "value"]
    assert ["a,b", "word", "20", "1.25"] in rows
    assert ["c", "loss", "10", "3.0"] in rows
    assert ["c", "CIDEr", "10", "50.0"] in rows
    assert ["c", "learning rate", "10", "0.001"] in rows


def test_a_page_and_a_drawing(tmp_path: Path) -> None:
    hostile = tmp_path / '<script>alert("x")'
    runs = [logged(hostile, [{"word": 2.0}, {"word": 1.0}]), logged(tmp_path / "b", [{"word": 3.0}])]
    write_plot(runs, tmp_path / "new" / "plot.html", 20)
    page = (tmp_path / "new" / "plot.html").read_text()
    assert page.count('<svg class="chart"') == 5
    assert "<script" not in page
    assert "http://www.w3.org" not in page
    write_plot(runs, tmp_path / "plot.svg", 20)
    drawing = ElementTree.parse(tmp_path / "plot.svg").getroot()
    titles = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "title"]
    assert titles[0] == "word: loss, mean of 20 logged steps, by step"
    assert len(titles) == 5
    assert not re.search(r"(?:href|src)=", (tmp_path / "plot.svg").read_text())


def test_the_page_says_in_what_runs_differ(tmp_path: Path) -> None:
    from diptych.systems import find_recipe

    runs = [logged(tmp_path / name, [{"word": 1.0}]) for name in ("a", "b")]
    for run, settings in zip(runs, ([], ["optimizer.lr=0.5"]), strict=True):
        find_recipe("unified-vlp/small/caption", settings).save(run)
    write_plot(runs, tmp_path / "plot.html", 20)
    assert "optimizer.lr: 0.5, first run: " in (tmp_path / "plot.html").read_text()


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no metrics\.jsonl in .*empty; pass the folder of a run"):
        write_plot([tmp_path / "empty"], tmp_path / "plot.html", 20)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match=r"begun: metrics\.jsonl has no logged step; wait"):
        write_plot([tmp_path / "begun"], tmp_path / "plot.html", 20)
    with pytest.raises(RecipeError, match=r"plot\.png: expected a name ending in \.html, \.svg or \.csv"):
        write_plot([tmp_path / "begun"], tmp_path / "plot.png", 20)
    assert not list(tmp_path.glob("plot.*"))


@pytest.mark.parametrize(
    "line",
    [
        '{"step": -5, "total": 1.0}',
        '{"step": 1' + "0" * 400 + ', "total": 1.0}',
        '{"step": 15, "total": 1' + "0" * 400 + "}",
        '{"step": 15, "total": "much", "losses": [1], "validation": "good", "lr": null}',
        "[" * 100_000,
        '"step"',
    ],
)
def test_a_damaged_line_is_passed_over(tmp_path: Path, line: str) -> None:
    run = logged(tmp_path / "run", [{"word": 3.0}, {"word": 2.0}])
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n" + line + "\n")
    (loss, *_) = charts({"run": run}, 1)
    assert loss.curves[0].points == ((10, 3.0), (20, 2.0))
    write_plot([run], tmp_path / "plot.svg", 1)
    ElementTree.parse(tmp_path / "plot.svg")


def test_values_too_large_for_an_axis_are_left_out(tmp_path: Path) -> None:
    run = logged(tmp_path / "run", [{"word": 1e308}, {"word": -1e308}, {"word": 2.0}])
    assert charts({"run": run}, 1)[0].curves[0].points == ((30, 2.0),)
