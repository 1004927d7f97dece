"""The score of each item of every task, with its texts, boxes and retrieved images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from diptych.core import Choices, Expression, Question, Record, Statement, TaskItem
from diptych.metrics.captions import caption_items
from diptych.tasks import find_task
from diptych.tasks.gallery import RetrievalGallery
from diptych.tasks.matching import rankings
from diptych.tasks.recall import recall_scores
from diptych.tasks.scores import Baselines, ItemScore
from diptych.tasks.two_towers import score_vectors

LEFT, RIGHT = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)


def rows(task: str, predicted: Mapping[str, Any], record: Record, blind: Any = None) -> Sequence[ItemScore]:
    scores = find_task(task).scoring.score(predicted, [record], Baselines(predicted=blind))
    assert [row.picture for row in scores.rows] == ["p"] * len(scores.rows)
    assert "rows" not in scores.to_json()
    return scores.rows


def test_a_caption_has_its_cider() -> None:
    truths = {"a": ("a red dog",), "b": ("two boats",)}
    written = {"a": "a red dog", "b": "a dog"}
    records = [Record(key, captions=texts) for key, texts in truths.items()]
    made = find_task("caption").scoring.score(written, records, None).rows
    assert [(row.picture, row.query, row.given) for row in made] == [("a", "", "a red dog"), ("b", "", "a dog")]
    assert [row.value for row in made] == caption_items(written, truths).cider.tolist()


def test_an_answer_has_its_accuracy_the_usual_answer_and_the_blind_one() -> None:
    asked = Question("q", "what colour", ("Red",) * 2 + ("blue",) * 8, "other")
    (row,) = rows("vqa", {"q": "red"}, Record("p", questions=(asked,)), {"q": "green"})
    assert (row.query, row.given, row.wanted, row.blind, row.kind) == ("what colour", "red", "blue", "green", "other")
    assert row.value == pytest.approx(0.6)
    assert row.right


@pytest.mark.parametrize(
    ("task", "record", "prediction", "given", "wanted"),
    [
        ("nlvr", Record("p", statements=(Statement("s", "a dog", True),)), False, "no", "yes"),
        ("classify", Record("p", more={"classify": (TaskItem("s", "hm", ("odd",)),)}), {"odd": 0.4, "fun": 0.6}, "fun",
         "odd"),
        ("entailment", Record("p", more={"entailment": (TaskItem("s", "hm", ("neutral",)),)}), "contradiction",
         "contradiction", "neutral"),
    ],
)  # fmt: skip
def test_a_class_is_right_or_wrong(task: str, record: Record, prediction: Any, given: str, wanted: str) -> None:
    (row,) = rows(task, {"s": prediction}, record, {"s": prediction})
    assert (row.given, row.wanted, row.blind, row.value, row.right) == (given, wanted, given, 0.0, False)


def test_a_found_box_and_the_true_box_are_kept() -> None:
    record = Record("p", expressions=(Expression("e", "the dog", LEFT), Expression("f", "the cat", RIGHT)))
    right, none = rows("referring", {"e": LEFT, "f": None}, record)
    assert right.boxes == (("found", LEFT), ("true", LEFT))
    assert (right.given, right.right) == ("IoU 1.00 with the true box", True)
    assert (none.given, none.boxes, none.right) == ("no region", (("true", RIGHT),), False)


def test_answers_and_rationales_are_scored_one_by_one() -> None:
    record = Record("p", choices=(Choices("c", "why", ("one", "two"), 0, ("three", "four"), 1),))
    answer, reason = rows("vcr", {"c/answer": 0, "c/rationale": 0}, record)
    assert (answer.given, answer.wanted, answer.right) == ("one", "one", True)
    assert (reason.given, reason.wanted, reason.kind, reason.right) == ("three", "four", "rationale", False)


def test_a_text_query_has_its_first_images_and_position() -> None:
    records = [Record("p", captions=("a dog",)), Record("q", captions=("a cat", "two cats"))]
    table = np.array([[0.2, 0.9, 0.1], [0.8, 0.3, 0.4]], dtype=np.float32)
    gallery = RetrievalGallery.of(records)
    paired = recall_scores(gallery, rankings(gallery, table)).rows
    # Vectors with these products: an image's are its row, a text's are a unit vector.
    vectors = [{"key": "picture", "picture": r.key, "vector": row} for r, row in zip(records, table, strict=True)]
    vectors += [
        {"key": caption.key, "picture": gallery.keys[caption.picture], "vector": unit}
        for caption, unit in zip(gallery.captions, np.eye(3), strict=True)
    ]
    for made in (paired, score_vectors(vectors, records).rows):
        assert [(row.key, row.picture, row.query) for row in made] == [
            ("p#0", "p", "a dog"), ("q#0", "q", "a cat"), ("q#1", "q", "two cats"),
        ]  # fmt: skip
        assert [row.hits for row in made] == [("q", "p"), ("p", "q"), ("q", "p")]
        assert [(row.given, row.value, row.right) for row in made] == [
            ("position 2", 0.5, False), ("position 2", 0.5, False), ("position 1", 1.0, True),
        ]  # fmt: skip
