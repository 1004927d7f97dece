"""Mean average precision, against numbers counted by hand."""

import pytest
import torch

from benchmarks.detection_scores import detection_scores
from diptych.core import Object, Record, Regions

KINDS = ("cat", "dog")
TRUTH = [
    Record("a", objects=(Object("cat", (0.0, 0.0, 0.5, 0.5)), Object("dog", (0.5, 0.5, 1.0, 1.0)))),
    Record("b", objects=(Object("dog", (0.1, 0.1, 0.4, 0.4)),)),
]


def seen(objects: list[tuple[str, float, tuple[float, float, float, float]]]) -> Regions:
    classes = torch.zeros(len(objects), 2)
    for row, (kind, _, _) in zip(classes, objects, strict=True):
        row[KINDS.index(kind)] = 1
    boxes = torch.tensor([box for *_, box in objects]).reshape(-1, 4)
    return Regions(boxes, torch.tensor([score for _, score, _ in objects]), (10, 10), classes)


def test_all_found_is_100_and_nothing_found_is_0() -> None:
    right = [seen([(t.kind, 0.9, t.box) for t in record.objects]) for record in TRUTH]
    assert detection_scores(right, TRUTH, KINDS) == pytest.approx({"mAP": 100, "mAP50": 100, "mAP75": 100}, abs=1e-6)
    assert detection_scores([seen([]), seen([])], TRUTH, KINDS) == {"mAP": 0, "mAP50": 0, "mAP75": 0}


def test_one_of_two_dogs_and_a_loose_box() -> None:
    """Cats: IoU .8, so found at .5 to .8. Dogs: one of two, so precision is 1 at 51 of COCO's 101 points."""
    found = [seen([("cat", 0.9, (0.0, 0.0, 0.5, 0.4)), ("dog", 0.8, (0.5, 0.5, 1.0, 1.0))]), seen([])]
    scores = detection_scores(found, TRUTH, KINDS)
    dogs = 100 * 51 / 101
    assert scores["mAP50"] == pytest.approx((100 + dogs) / 2)
    assert scores["mAP75"] == pytest.approx((100 + dogs) / 2)
    assert scores["mAP"] == pytest.approx((70 + dogs) / 2, abs=5.1)  # .8 itself may fall to either side


def test_the_wrong_kind_is_not_found() -> None:
    wrong = [seen([("dog", 0.9, TRUTH[0].objects[0].box)]), seen([("dog", 0.8, TRUTH[1].objects[0].box)])]
    # A false dog comes before the true one: precision 1/2 at recall 1/2.
    assert detection_scores(wrong, TRUTH, KINDS)["mAP50"] == pytest.approx(0.5 * 100 * 51 / 101 / 2)
