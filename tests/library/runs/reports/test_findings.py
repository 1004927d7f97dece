"""Findings that need no drawn world."""

from diptych.runs.reports.findings import findings_of, repeated
from diptych.tasks.scores import ItemScore


def answer(number: int, given: str, blind: str = "") -> ItemScore:
    return ItemScore(str(number), "p", "is it so", given, "yes", float(given == "yes"), "yes/no", blind)


def test_the_share_of_answers_that_the_question_suggests() -> None:
    (finding,) = findings_of([*(answer(n, "yes", "yes") for n in range(3)), answer(3, "no", "yes")])
    assert "1 of 4 answers are wrong" in finding.text
    assert "75% of the answers equal those of the blind baseline" in finding.text
    assert [(row.label, row.value) for row in finding.rows] == [("yes/no", "1 of 4"), ("answered “no” for “yes”", "1×")]
    assert "blind" not in findings_of([answer(0, "no")])[0].text


def test_captions_that_repeat_are_counted() -> None:
    captions = [ItemScore(key, key, "", "a dog" if key < "c" else "a cat", "", 1.0) for key in "abc"]
    finding = repeated(captions)
    assert finding.text.startswith("2 different captions for 3 pictures.")
    assert [(row.label, row.value) for row in finding.rows] == [("a dog", "2×")]


def test_what_has_boxes_or_hits_has_no_table() -> None:
    assert not findings_of([ItemScore("a", "a", "q", "x", "y", 0.0, hits=("b",))])
    assert not findings_of([ItemScore("a", "a", "q", "x", "y", 0.0, boxes=(("true", (0.0, 0.0, 1.0, 1.0)),))])
