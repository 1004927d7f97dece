"""Referring expressions, as in RefCOCO+: find the region that a phrase describes, such as "the left dog"."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from diptych.core import Batch, Expression, Record, Regions, Sample, StateRequest, Task, Vocabulary, iou
from diptych.core.shares import Share
from diptych.data.store.tokens import Tokens
from diptych.models.heads import RegionScoreHead
from diptych.objectives import GroundExpression, Schedule, SeenRegionClass
from diptych.objectives.settings import SeenClasses, weighed
from diptych.runtime.devices import Precision
from diptych.runtime.errors import ServingError
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks import interface
from diptych.tasks.run import encode, finite
from diptych.tasks.scores import Baselines, ItemScore, Scores, present, share_scores
from diptych.tasks.spec import Heads, Small, TaskScoring, TaskSpec, TaskTraining, TrainingRecords

FOUND = 0.5  # minimum IoU of a right box with the true box
WHOLE = (0.0, 0.0, 1.0, 1.0)
Box = Sequence[float]


@dataclass(frozen=True)
class Referring:
    """Choose the region of the image that fits an expression best. Regions are detected or annotated boxes."""

    tokens: Tokens
    max_words: int = 20

    name = "referring"

    def samples(self, record: Record) -> list[Sample]:
        return self.queries(record)

    def queries(self, record: Record) -> list[Sample]:
        samples = []
        for one in record.expressions:
            text = encode(self.tokens, one.text, self.max_words)
            samples.append(Sample(one.key, record.key, record.regions, text, truth={"box": one.box}))
        return samples

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the box and probability of the best region. The box is None if the image has no region."""
        states = model(replace(batch, request=StateRequest(regions=batch.regions_present)))
        scores = model.heads["region_score"](states.regions).float().reshape(batch.regions_present.shape)
        finite(scores.masked_fill(~batch.regions_present, 0), batch)
        if not scores.shape[1]:
            return [{"key": key, "region": None, "box": None, "score": 0.0} for key in batch.keys]
        best = scores.masked_fill(~batch.regions_present, -torch.inf).argmax(1)
        predictions = []
        for row, (key, region) in enumerate(zip(batch.keys, best.tolist(), strict=True)):
            there = bool(batch.regions_present[row, region])
            box = batch.boxes[row, region].tolist() if there else None
            score = float(scores[row, region].sigmoid()) if there else 0.0
            predictions.append({"key": key, "region": region if there else None, "box": box, "score": score})
        return predictions

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the percentage of expressions whose predicted box has an IoU of 0.5 or more with the true box."""
        right, _ = box_hits({prediction["key"]: prediction["box"] for prediction in predictions}, records)
        return {"accuracy": 100 * float(right.mean())}


def box_hits(predicted: dict[str, Box | None], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
    """Return 1.0 (right) or 0.0 (wrong) for each expression, and the keys of their images."""
    right, pictures = [], []
    for record, expression in expressions_of(records):
        box = predicted[expression.key]
        right.append(float(box is not None and iou(box, expression.box) >= FOUND))
        pictures.append(record.key)
    return np.array(present(right, "expressions to score")), pictures


def expressions_of(records: Sequence[Record]) -> Iterator[tuple[Record, Expression]]:
    """Yield each expression of the records as (record, expression)."""
    return ((record, expression) for record in records for expression in record.expressions)


def can_be_found(expression: Expression, regions: Regions | None) -> bool:
    """Return True if any region has an IoU of at least FOUND with the expression's true box."""
    return regions is not None and bool((regions.overlaps(expression.box) >= FOUND).any())


def score_referring(
    predicted: Mapping[str, Box | None], records: Sequence[Record], baselines: Baselines | None = None
) -> Scores:
    """Compute the accuracy at IoU 0.5.

    `predicted`: {key of the expression: box (x1, y1, x2, y2) from 0 to 1, or None}.
    """
    rows = tuple(_row(record.key, one, predicted[one.key]) for record, one in expressions_of(records))
    return share_scores("referring", {"accuracy": box_hits(dict(predicted), records)}, "expressions", baselines, rows)


def _row(picture: str, one: Expression, box: Box | None) -> ItemScore:
    overlap = 0.0 if box is None else iou(box, one.box)
    given = "no region" if box is None else f"IoU {overlap:.2f} with the true box"
    boxes = (*([("found", box)] if box is not None else []), ("true", one.box))
    return ItemScore(one.key, picture, one.text, given, "0.50 or more", float(overlap >= FOUND), boxes=boxes)


def referring_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Return the blind baseline and the ceiling of records with regions.

    The blind baseline ignores the words. It takes the largest or the most confident region, whichever scores higher on
    the training records.
    """
    scored = [(expression, record.regions) for record, expression in expressions_of(records)]
    if not scored:
        return Baselines()
    learnt = [(e, r.regions) for r, e in expressions_of(training) if r.regions is not None] or scored
    rates = {name: [_is_hit(e.box, r, rule(r)) for e, r in learnt] for name, rule in _RULES.items()}
    name = max(rates, key=lambda rule: float(np.mean(rates[rule])))
    blind = float(np.mean([_is_hit(e.box, r, _RULES[name](r)) for e, r in scored]))
    chance = float(np.mean([_share(e.box, r) for e, r in scored]))
    ceiling = float(np.mean([can_be_found(e, r) for e, r in scored]))
    notes = (
        f"blind: {name}, whatever the words are; a region at random: {100 * chance:.1f}",
        f"ceiling: some region overlaps the true box by IoU {FOUND} or more; "
        f"{sum(not can_be_found(e, r) for e, r in scored)} of {len(scored)} expressions have none and count as wrong",
    )
    return Baselines({"accuracy": blind}, {"accuracy": ceiling}, notes)


def _largest(regions: Regions | None) -> int | None:
    if regions is None or not len(regions):
        return None
    return int((regions.boxes[:, 2:] - regions.boxes[:, :2]).prod(-1).argmax())


def _most_confident(regions: Regions | None) -> int | None:
    return None if regions is None or not len(regions) else int(regions.scores.argmax())


_RULES = {"the largest region": _largest, "the region with the detector's highest confidence": _most_confident}


def _is_hit(box: Box, regions: Regions | None, number: int | None) -> bool:
    return regions is not None and number is not None and bool(regions.overlaps(box)[number] >= FOUND)


def _share(box: Box, regions: Regions | None) -> float:
    if regions is None or not len(regions):
        return 0.0
    return float((regions.overlaps(box) >= FOUND).float().mean())


def _without_region(_: Task, records: TrainingRecords) -> Iterator[str]:
    """Yield a warning about the expressions that are left out, because no region matches their true box."""
    expressions = list(expressions_of(records.sampled()))
    lost = [expression.key for record, expression in expressions if not can_be_found(expression, record.regions)]
    if lost:
        yield f"{len(lost)} of {len(expressions)} expressions{records.scope} are left out: no region fits ({lost[0]})"


def _start_from_classes(_: Task, heads: nn.ModuleDict, start: Heads) -> None:
    """Initialise the head "region_score" from the head "region_class", as in VL-BERT's fine-tuning on RefCOCO+."""
    if "region_score" not in start.heads and "region_class" in start.heads:
        ours, theirs = heads["region_score"], start.heads["region_class"]
        if isinstance(ours, RegionScoreHead) and isinstance(theirs, nn.Sequential):
            ours.dense.load_state_dict(theirs[0].state_dict())


class ReferringObjectives(SeenClasses):
    """Fine-tuning for referring expressions: each region is scored by how well the expression fits it."""

    kind: Literal["referring"] = "referring"
    """Kind of objectives."""
    overlap: Share = 0.5
    """A region is right if its IoU with the true box is above this."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return weighed((GroundExpression(self.overlap), 1.0), (SeenRegionClass(), self.seen_classes))


class GroundRequest(interface.TaskRequest):
    expression: Annotated[
        interface.Text, interface.Form("What to find", "the dog left of the bench", argument="expression")
    ] = Field(description="Words for a region, such as 'the dog left of the bench'.")


class Grounded(interface.TaskAnswer):
    expression: str
    box: interface.PixelBox = Field(description="Left, top, width, height in pixels.")
    probability: float
    shown: str | None = None


@dataclass(frozen=True)
class FoundRegion:
    """The region found for an expression: its corners (x1, y1, x2, y2, from 0 to 1) and its probability."""

    box: tuple[float, float, float, float]
    score: float
    region: int
    record: Record
    precision: Precision

    def pixels(self, width: int, height: int) -> interface.PixelBox:
        """Return the box as (left, top, width, height) in pixels. `width` and `height` are the image's."""
        return interface.pixel_box(self.box, (width, height))


def ground(model: interface.TaskModel, requests: Sequence[tuple[Record, GroundRequest]]) -> list[FoundRegion]:
    """Find the region for each request's expression, in one batch. Raises ServingError for a record without regions."""
    records = []
    for number, (record, request) in enumerate(requests):
        interface.require_text("an expression", request.expression, "the dog left of the bench")
        records.append(replace(record, expressions=(Expression(str(number), request.expression, WHOLE),)))
    precision = model.precision(len(requests))
    return [_grounded(record, one, precision) for record, one in zip(records, model.ask(records), strict=True)]


def _grounded(record: Record, prediction: dict[str, Any], precision: Precision) -> FoundRegion:
    if prediction["box"] is None:
        raise ServingError(f"the detector found no region in {record.key}, so there is no answer; pass another image")
    x1, y1, x2, y2 = prediction["box"]
    return FoundRegion((x1, y1, x2, y2), prediction["score"], prediction["region"], record, precision)


def _message(region: FoundRegion, request: GroundRequest, picture: str) -> Grounded:
    assert region.record.regions is not None
    return Grounded(
        picture=picture,
        precision=region.precision,
        expression=request.expression,
        box=region.pixels(*region.record.regions.size),
        probability=region.score,
    )


def _lines(message: Grounded, _: bool) -> list[str]:
    left, top, width, height = message.box
    shown = "" if message.shown is None else f"; {message.shown}"
    return [f"left {left}, top {top}, width {width}, height {height} ({message.probability:.2f}){shown}"]


def _view(_: GroundRequest, message: Grounded) -> interface.PageView:
    left, top, width, height = message.box
    return interface.PageView(
        summary=message.expression,
        box=message.box,
        verdicts=(f"Found, {interface.percent(message.probability)} sure",),
        notes=(f"left {left}, top {top}, width {width}, height {height} pixels",),
    )


REFERRING = TaskSpec(
    name="referring",
    title="Referring expressions",
    learns="point",
    field="expressions",
    head="region_score",
    build=lambda given: Referring(given.tokens, given.max_words),
    training=TaskTraining(
        watched="accuracy",
        objectives=(ReferringObjectives,),
        small=Small(ReferringObjectives()),
        begin=_start_from_classes,
        notes=_without_region,
    ),
    scoring=TaskScoring(
        noun="expressions",
        key="box",
        shown=("accuracy",),
        score=score_referring,
        baselines=referring_baselines,
        baseline_regions=500,
    ),
    interface=interface.TaskInterface(
        verb="ground",
        help=TASK_VERBS["ground"].help,
        words=interface.InterfaceWords(
            does="finds the region that an expression describes",
            example='print(model.ground("photo.jpg", "the dog on the left").box)',
            tab="Find",
        ),
        request=GroundRequest,
        response=Grounded,
        answer=ground,
        message=_message,
        lines=_lines,
        view=_view,
    ),
)
