"""The page: it parses, fetches nothing, runs one script, and its figures are those it was given."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from diptych.runs.reports.html import page, write_report
from diptych.runs.reports.report import Arm, Headline, Report, ShownPicture
from diptych.tasks.scores import Score, Scores
from diptych_world.demo.measure import MeasuredScores
from diptych_world.demo.page import demo_report
from tests.support.hostile import HOSTILE

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that tags close in order; keeps tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def written(report: Report, tmp_path: Path) -> Page:
    return Page(write_report(tmp_path / "out" / "report.html", report).read_text("utf-8"))


def test_hostile_text_is_shown_and_does_nothing(written: Page) -> None:
    tags = {tag for tag, _ in written.tags}
    assert not tags & {"iframe", "object", "embed", "link", "form", "base"}
    assert written.text.count("<script>alert('x')</script>") > 10
    assert "{{ 7 * 7 }}" in written.text
    assert "\u202e" not in written.text, "what follows would be mirrored"
    assert not [name for _, attributes in written.tags for name in attributes if name.startswith("on")]


def test_nothing_is_fetched_and_one_script_runs(report: Report, written: Page) -> None:
    for tag, attributes in written.tags:
        for name in ("src", "href", "xlink:href", "action", "poster", "srcset"):
            address = attributes.get(name)
            assert address is None or address.startswith(("data:image/jpeg;base64,", "#")), f"<{tag} {name}={address}>"
    assert "url(" not in written.text
    assert "@import" not in written.text
    policies = [a.get("content") or "" for tag, a in written.tags if a.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", page(report), re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policies == [f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"]
    assert HOSTILE not in script


def test_links_inside_the_page_go_somewhere(written: Page) -> None:
    ids = {attributes["id"] for _, attributes in written.tags if "id" in attributes}
    assert {(a["href"] or "")[1:] for tag, a in written.tags if tag == "a"} <= ids


def test_figures_are_those_that_were_given(report: Report, written: Page) -> None:
    for comparison in report.comparisons:
        for score in comparison.arms[0].scores.scores:
            for value in (score.value, score.low, score.high, score.blind, score.ceiling):
                assert value is None or f"{value:.1f}" in written.text, f"{score.name} {value}"
    assert "1 min 1 s" in written.text
    assert "512 MiB" in written.text
    assert "at the end 40" in written.text  # CIDEr of the last whole line of the log


def test_a_bar_stands_where_its_figure_is(report: Report) -> None:
    score = Score("CIDEr", 50.0, 40.0, 60.0, blind=25.0, ceiling=100.0)
    arm = Arm("a", Scores("caption", (score,), 2, 2))
    comparison = replace(report.comparisons[0], arms=(arm,), drawn=("CIDEr",))
    shown = Page(page(Report("t", "l", comparisons=(comparison,))))
    (dot,) = [a for tag, a in shown.tags if tag == "circle" and a.get("r") == "6"]
    (ceiling,) = [a for tag, a in shown.tags if a.get("class") == "edge" and tag == "line"]
    place, end = (float((a or "").rstrip("%")) for a in (dot["cx"], ceiling["x1"]))
    assert place / end == pytest.approx(0.5, abs=0.001)


def test_pictures_are_inside_with_their_boxes(report: Report, written: Page) -> None:
    images = [a["href"] or "" for tag, a in written.tags if tag == "image"]
    assert len(images) == len(report.gallery) == 2
    assert Image.open(BytesIO(base64.b64decode(images[0].partition(",")[2]))).size == (40, 30)
    boxes = [a for tag, a in written.tags if tag == "rect" and re.fullmatch(r"k\d", a.get("class") or "") and "rx" in a]
    drawn = {(a.get("x"), a.get("y"), a.get("width"), a.get("height")) for a in boxes}
    assert ("4.0", "6.0", "16.0", "21.0") in drawn


def test_a_picture_that_is_gone_leaves_a_word(tmp_path: Path) -> None:
    shown = Page(page(Report("t", "l", gallery=(ShownPicture("k", tmp_path / "gone.png", (10, 10)),))))
    assert "no image" in shown.text


def test_an_empty_report_is_a_page(tmp_path: Path) -> None:
    assert Page(page(Report("t", "nothing yet"))).text.count("nothing yet") == 1
    assert HOSTILE not in page(Report(HOSTILE, ""))


def test_the_headline_marks_and_warnings_are_on_the_page(report: Report) -> None:
    arms = tuple(
        Arm(name, Scores("vqa", (Score("all", value, blind=31.9, ceiling=90.0),), 2, items))
        for name, value, items in (("a long name of an arm", 25.9, 29), ("other", 95.0, 29))
    )
    comparison = replace(report.comparisons[0], arms=arms, drawn=("all",))
    headline = Headline("+72 CIDEr", "from pre-training")
    found = Page(page(replace(report, comparisons=(comparison,), headlines=(headline,))))
    assert "+72 CIDEr from pre-training" in found.text
    assert found.text.count("below blind") == 2  # next to the bar and in the table
    assert found.text.count("above ceiling") == 2
    assert "Only 29 scored: too few for a reliable score." in found.text
    assert "a long name of an arm: all 25.9, blind 31.9, ceiling 90.0" in found.text, "shown when the mouse is over it"
    enough = tuple(replace(arm, scores=replace(arm.scores, items=30)) for arm in arms)
    assert "too few" not in page(replace(report, comparisons=(replace(comparison, arms=enough),)))


def test_the_headline_is_the_paired_gain() -> None:
    gain = Score("CIDEr", 72.4, 60.0, 85.0)
    scores = {name: Scores("caption", (Score("CIDEr", value),), 200, 200) for name, value in (("x", 20.0), ("y", 92.4))}
    measured = MeasuredScores((), {"caption": scores}, {"caption": gain})
    made = demo_report(measured, [], runs={}, seconds={}, memory_mib={}, configuration={}, notes={})
    assert made.headlines[0].figure == "+72 CIDEr"
    assert made.headlines[0].text.endswith(": y 92.4, x 20.0, 95% interval +60.0 to +85.0")
    small = replace(measured, gains={"caption": Score("CIDEr", -0.4)})
    (headline,) = demo_report(small, [], {}, {}, {}, {}, {}).headlines
    assert headline.figure == "-0.4 CIDEr", "not -0"
