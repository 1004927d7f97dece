"""The images of a report: which are chosen, and what is drawn on them."""

from dataclasses import replace
from pathlib import Path

import torch

from diptych.core import Record, Regions
from diptych.runs.reports.gallery import boxes, extremes, shown
from diptych.tasks.scores import ItemScore

NAMES = ("dog", "boat", "other")
RECORD = Record(
    "a",
    regions=Regions(
        boxes=torch.tensor([[0.1, 0.2, 0.5, 0.9], [0.8, 0.0, 1.0, 0.3]]),
        scores=torch.tensor([0.9, 0.5]),
        size=(40, 30),
        classes=torch.eye(3)[[0, 2]],
    ),
)


def test_a_region_is_not_of_the_background() -> None:
    assert [box.name for box in boxes(RECORD, ("dog", "boat", "background"))] == ["dog", "dog"]
    assert [box.name for box in boxes(RECORD, NAMES)] == ["dog", "other"]
    assert [box.name for box in boxes(RECORD, ())] == ["", ""]
    assert boxes(replace(RECORD, regions=None), NAMES) == ()


def test_the_worst_and_the_best_are_among_the_chosen() -> None:
    rows = [ItemScore(f"{n}/{q}", str(n), "q", "a", "b", n / 100) for n in range(100) for q in "xy"]
    chosen = [*extremes(rows, 9)]
    assert len(set(chosen)) == 9
    assert chosen[:3] == ["0", "1", "2"]
    assert chosen[3:] == ["3", "34", "65", "97", "98", "99"], "nobody chose those between"
    assert extremes(rows[:4], 9) == {"0": rows[:2], "1": rows[2:4]}


def test_the_lowest_score_is_first_and_items_keep_their_own_boxes() -> None:
    true, found = (0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0)
    rows = [
        ItemScore("a/1", "a", "the dog", "x", "y", 0.0, boxes=(("found", found), ("true", true))),
        ItemScore("a/2", "a", "the cat", "x", "y", 1.0, boxes=(("true", true),)),
        ItemScore("b#0", "b", "a boat", "position 3", "position 1", 1 / 3, hits=("a", "c", "b")),
    ]
    other = replace(RECORD, key="b")
    first, second = shown([RECORD, other], NAMES, extremes(rows, 9), images={"a": Path("a.png"), "b": None, "z": None})
    assert (first.key, second.key) == ("b", "a")
    assert first.hits == {"a": Path("a.png"), "c": None, "b": None}
    assert [box.name for box in first.boxes] == ["dog", "other"], "the detector's"
    assert [(box.name, box.box) for box in second.boxes] == [("1 found", found), ("1 true", true), ("2 true", true)]
    assert not rows[2].right, "only the first place is right"
