from pathlib import Path

from diptych.core import Record
from diptych.runs.reports.charts import chart, draw
from diptych.runs.reports.gallery import extremes, shown
from diptych.runs.reports.labels import lay_out
from diptych.runs.reports.page import gain_of
from diptych.runs.reports.report import Box, Chart, Curve
from diptych.tasks.scores import ItemScore, Score
from diptych_world.demo.findings import find, missed_things
from diptych_world.demo.gallery import absent_words, words

NAMES = ("dog", "boat", "other")


def test_what_failed_is_counted(records: list[Record], rows: list[ItemScore]) -> None:
    found = {finding.title: finding for finding in find(records, NAMES, rows)}
    assert "Captions written more than once" not in found  # each was written once
    assert found["Named, but not there"].text.startswith(
        "1 of 2 captions name an object that is not in the image (0% of the reference captions do so). "
        "The detector had reported 0 of these 1 objects"
    )
    assert [(row.label, row.value) for row in found["Named, but not there"].rows] == [("cat", "1")]
    assert found["Missed by the detector"].text == "The detector missed or misnamed 1 of 2 objects."
    assert [(row.label, row.value) for row in found["Missed by the detector"].rows] == [("boat", "1 of 1")]
    wrong = found["Wrong answers, by kind and as they were confused"]
    assert [(row.label, row.value) for row in wrong.rows] == [
        ("other", "0 of 2"), ("yes/no", "2 of 2"), ("answered “no” for “yes”", "2×"),
    ]  # fmt: skip
    known = {row.label: row.value for row in found["Could it have known?"].rows}
    assert known == {
        "all objects found (2 questions)": "50.0", "an object missed (2 questions)": "50.0",
    }  # fmt: skip
    assert missed_things(records, NAMES) == {"test/000000": [], "test/000001": ["boat"]}


def test_synonyms_and_plurals_name_kinds(records: list[Record]) -> None:
    assert absent_words("two Puppies, a sailboat and 3 buses", records[0]) == {
        "sailboat": "boat",
        "buses": "bus",
    }


def test_the_caption_of_the_page_is_the_caption(records: list[Record], rows: list[ItemScore]) -> None:
    everything = {one.key: one for one in shown(records, NAMES, extremes(rows, 9), words)}
    assert [everything[row.picture].written for row in rows[:2]] == [row.given for row in rows[:2]]
    assert [word.text for word in everything[records[1].key].caption if word.absent] == ["cats"]
    assert [everything[row.picture].cider for row in rows[:2]] == [100 * row.value for row in rows[:2]]


def test_labels_stay_in_the_picture_and_off_each_other() -> None:
    boxes = [Box("umbrella", (0.9, 0.0, 1.0, 0.1), 0.9), Box("umbrella", (0.9, 0.0, 1.0, 0.1), 0.8)]
    first, second = lay_out(boxes, (160, 160))
    assert (first.x, first.y) != (second.x, second.y)
    assert all(0 <= label.x < 140 and 0 < label.y <= 160 for label in (first, second))


def test_curves_of_a_log(run: Path) -> None:
    drawn = chart("t", {"a": run, "b": run / "nothing"}, "CIDEr")
    assert drawn is not None
    assert drawn.curves == (Curve("a", ((1, 10), (2, 20), (4, 40))),)
    assert chart("t", {"a": run}, "no such score") is None
    loss = chart("t", {"a": run})
    assert loss is not None
    assert loss.curves[0].points[-1] == (4, 2)


def test_a_drawing_keeps_its_points_inside_and_in_order() -> None:
    place = draw(Chart("t", (Curve("a", ((0, 5.0), (10, 5.0))), Curve("b", ((5, -1.0), (10, 4.0))))))
    for line in place.lines:
        points = [tuple(map(float, pair.split(","))) for pair in line.points.split()]
        assert all(place.left <= x <= place.right and 0 <= y <= place.bottom for x, y in points)
    assert [tick.label for tick in place.across] == ["0", "2", "4", "6", "8", "10"]
    assert place.up[0].place > place.up[-1].place
    assert draw(Chart("t", (Curve("a", ((1, 3.0),)),))).lines[0].value == "3"
    assert draw(Chart("t", (Curve("a", ((1, 60.0), (2, 62.0))),), from_zero=True)).up[0].label == "0"


def test_a_gain_says_whether_it_may_be_nothing() -> None:
    clear = gain_of(["from scratch", "pre-trained"], Score("CIDEr", 8.04, 2.0, 14.0))
    assert clear.startswith("pre-trained minus from scratch: CIDEr +8.0, 95% paired bootstrap interval +2.0 to +14.0.")
    assert "do not differ significantly" in gain_of(["a", "b"], Score("CIDEr", 1.0, -2.0, 4.0))
