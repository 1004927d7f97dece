"""Compute the mean average precision of detected regions with pycocotools."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from diptych.core import Record, Regions

SCALE = 1000  # boxes are fractions; pycocotools takes pixels, and calls objects under 32 x 32 small


def detection_scores(seen: Sequence[Regions], records: Sequence[Record], kinds: Sequence[str]) -> dict[str, float]:
    """Return mAP (IoU .5 to .95), mAP50 and mAP75 in percent, over the kinds of objects that occur.

    `kinds` names the columns of `Regions.classes`. A region counts as its most probable kind except "background".
    Regions are ranked by their scores.
    """
    truths = [
        _annotation(image, kinds.index(thing.kind), thing.box) | {"iscrowd": 0}
        for image, record in enumerate(records)
        for thing in record.objects
    ]
    columns = [column for column, kind in enumerate(kinds) if kind != "background"]
    detected = [
        _annotation(image, columns[best], box) | {"score": score}
        for image, regions in enumerate(seen)
        if regions.classes is not None
        for best, box, score in zip(
            regions.classes[:, columns].argmax(1).tolist(), regions.boxes.tolist(), regions.scores.tolist(), strict=True
        )
    ]
    if not detected or not truths:
        return {"mAP": 0.0, "mAP50": 0.0, "mAP75": 0.0}
    with redirect_stdout(StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": image} for image in range(len(records))],
            "categories": [{"id": number, "name": kind} for number, kind in enumerate(kinds)],
            "annotations": [annotation | {"id": number} for number, annotation in enumerate(truths, start=1)],
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detected), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return dict(zip(("mAP", "mAP50", "mAP75"), (100 * float(s) for s in evaluation.stats[:3]), strict=True))


def _annotation(image: int, kind: int, box: Sequence[float]) -> dict[str, Any]:
    x1, y1, x2, y2 = (SCALE * side for side in box)
    return {"image_id": image, "category_id": kind, "bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
