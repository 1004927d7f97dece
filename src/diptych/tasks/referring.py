"""Referring expressions: find the region that some words single out (RefCOCO+)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from diptych.core import Batch, Expression, Record, Regions, Sample, StateRequest, Task, Vocabulary, iou
from diptych.core.shares import Share
from diptych.data.store.tokens import Tokens
from diptych.models.heads import RegionScoreHead
from diptych.objectives import GroundExpression, Schedule, SeenRegionClass
from diptych.objectives.settings import SeenClasses, weighed
from diptych.runtime.devices import Precision
from diptych.runtime.errors import DataError, ServingError
from diptych.tasks.interface import (
    Form,
    InterfaceWords,
    PageView,
    PixelBox,
    TaskAnswer,
    TaskInterface,
    TaskModel,
    TaskRequest,
    Text,
    percent,
    pixel_box,
    require_text,
)
from diptych.tasks.run import finite
from diptych.tasks.scores import Baselines, Scores, share_scores
from diptych.tasks.spec import Small, Start, TaskScoring, TaskSpec, TaskTraining, TrainingRecords

FOUND = 0.5  # IoU with the true box from which on it counts as found
WHOLE = (0.0, 0.0, 1.0, 1.0)
Box = Sequence[float]


@dataclass(frozen=True)
class Referring:
    """An expression, then the best of the picture's regions: detected ones, or the objects themselves (given boxes)."""

    tokens: Tokens
    max_words: int = 20

    name = "referring"

    def samples(self, record: Record) -> list[Sample]:
        return self.queries(record)

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(
                key=expression.key,
                picture=record.key,
                regions=record.regions,
                text=self._text(expression.text),
                truth={"box": expression.box},
            )
            for expression in record.expressions
        ]

    def _text(self, expression: str) -> Int[Tensor, "T"]:
        return torch.tensor([*self.tokens.encode(expression)[: self.max_words], self.tokens.vocabulary.sep])

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """The box of the best region, with its probability; no box where the picture has no region."""
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
        """Share of the expressions whose box overlaps the true one by IoU 0.5 or more, times 100."""
        right, _ = box_hits({prediction["key"]: prediction["box"] for prediction in predictions}, records)
        return {"accuracy": 100 * float(right.mean())}


def box_hits(predicted: dict[str, Box | None], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
    """1 where a box is right, for each expression of the records, and its picture."""
    right, pictures = [], []
    for record, expression in expressions_of(records):
        box = predicted[expression.key]
        right.append(float(box is not None and iou(box, expression.box) >= FOUND))
        pictures.append(record.key)
    if not right:
        raise DataError("no record has expressions to score; choose another split with --split")
    return np.array(right), pictures


def expressions_of(records: Sequence[Record]) -> Iterator[tuple[Record, Expression]]:
    return ((record, expression) for record in records for expression in record.expressions)


def can_be_found(expression: Expression, regions: Regions | None) -> bool:
    """Whether any region would count as right."""
    return regions is not None and bool((regions.overlaps(expression.box) >= FOUND).any())


def score_referring(
    predicted: Mapping[str, Box | None], records: Sequence[Record], baselines: Baselines | None = None
) -> Scores:
    """Accuracy at IoU 0.5; `said` has a box (corners, fractions) for each expression's key."""
    return share_scores("referring", {"accuracy": box_hits(dict(predicted), records)}, "expressions", baselines)


def referring_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Of records with regions. Blind is who does not read: which box is best without words is learnt on training."""
    asked = [(expression, record.regions) for record, expression in expressions_of(records)]
    if not asked:
        return Baselines()
    learnt = [(e, r.regions) for r, e in expressions_of(training) if r.regions is not None] or asked
    rates = {name: [_is_hit(e.box, r, rule(r)) for e, r in learnt] for name, rule in _RULES.items()}
    name = max(rates, key=lambda rule: float(np.mean(rates[rule])))
    blind = float(np.mean([_is_hit(e.box, r, _RULES[name](r)) for e, r in asked]))
    chance = float(np.mean([_share(e.box, r) for e, r in asked]))
    ceiling = float(np.mean([can_be_found(e, r) for e, r in asked]))
    notes = (
        f"blind: {name}, whatever the words are; a region at random: {100 * chance:.1f}",
        f"ceiling: some region overlaps the true box by IoU {FOUND} or more; "
        f"{sum(not can_be_found(e, r) for e, r in asked)} of {len(asked)} expressions have none and count as wrong",
    )
    return Baselines({"accuracy": blind}, {"accuracy": ceiling}, notes)


def _largest(regions: Regions | None) -> int | None:
    if regions is None or not len(regions):
        return None
    return int((regions.boxes[:, 2:] - regions.boxes[:, :2]).prod(-1).argmax())


def _surest(regions: Regions | None) -> int | None:
    return None if regions is None or not len(regions) else int(regions.scores.argmax())


_RULES = {"the largest region": _largest, "the region of which the detector is surest": _surest}


def _is_hit(box: Box, regions: Regions | None, number: int | None) -> bool:
    return regions is not None and number is not None and bool(regions.overlaps(box)[number] >= FOUND)


def _share(box: Box, regions: Regions | None) -> float:
    if regions is None or not len(regions):
        return 0.0
    return float((regions.overlaps(box) >= FOUND).float().mean())


def _not_to_be_found(_: Task, records: TrainingRecords) -> Iterator[str]:
    """Expressions that no region fits."""
    asked = [(record, expression) for record, expression in expressions_of(records.seen())]
    lost = [expression.key for record, expression in asked if not can_be_found(expression, record.regions)]
    if lost:
        yield (
            f"{len(lost)} of {len(asked)} expressions{records.first} are left out: no region overlaps the true box by "
            f"half (the first: {lost[0]})"
        )


def _begin_as_class(_: Task, heads: nn.ModuleDict, start: Start) -> None:
    """Scores of regions begin with what told their classes, as in VL-BERT's fine-tuning on RefCOCO+."""
    if "region_score" not in start.heads and "region_class" in start.heads:
        ours, theirs = heads["region_score"], start.heads["region_class"]
        if isinstance(ours, RegionScoreHead) and isinstance(theirs, nn.Sequential):
            ours.dense.load_state_dict(theirs[0].state_dict())


class ReferringObjectives(SeenClasses):
    """Referring expressions."""

    kind: Literal["referring"] = "referring"
    """Kind of objectives."""
    overlap: Share = 0.5
    """IoU with the true box over which a region is a right one."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return weighed((GroundExpression(self.overlap), 1.0), (SeenRegionClass(), self.seen_classes))


class GroundRequest(TaskRequest):
    expression: Annotated[
        Text,
        Form(
            "What to find",
            "the dog left of the bench",
            argument="expression",
            first=True,
            help="Words for a region, such as 'the dog left of the bench'.",
        ),
    ] = Field(description="Such as 'the dog left of the bench'.")


class Grounded(TaskAnswer):
    expression: str
    box: PixelBox = Field(description="Left, top, width, height in pixels.")
    probability: float
    shown: str | None = None


@dataclass(frozen=True)
class FoundRegion:
    """A region: its corners as fractions, and the probability that it is the one."""

    box: tuple[float, float, float, float]
    score: float
    region: int
    record: Record
    precision: Precision

    def pixels(self, width: int, height: int) -> PixelBox:
        """COCO's left, top, width, height in a picture of this size."""
        return pixel_box(self.box, (width, height))


def ground(model: TaskModel, asked: Sequence[tuple[Record, GroundRequest]]) -> list[FoundRegion]:
    """The region that each expression means in its record, all in one pass."""
    for _, request in asked:
        require_text("an expression", request.expression, "the dog left of the bench")
    expressions = [
        replace(record, expressions=(Expression(str(number), request.expression, WHOLE),))
        for number, (record, request) in enumerate(asked)
    ]
    precision = model.precision(len(asked))
    return [_found(record, one, precision) for (record, _), one in zip(asked, model.ask(expressions), strict=True)]


def _found(record: Record, prediction: dict[str, Any], precision: Precision) -> FoundRegion:
    if prediction["box"] is None:
        raise ServingError(f"the detector saw nothing in {record.key}, so nothing can be pointed at; give another one")
    x1, y1, x2, y2 = prediction["box"]
    return FoundRegion((x1, y1, x2, y2), prediction["score"], prediction["region"], record, precision)


def _message(found: FoundRegion, asked: GroundRequest, picture: str) -> Grounded:
    assert found.record.regions is not None
    return Grounded(
        picture=picture,
        precision=found.precision,
        expression=asked.expression,
        box=found.pixels(*found.record.regions.size),
        probability=found.score,
    )


def _lines(told: Grounded, _: bool) -> list[str]:
    left, top, width, height = told.box
    return [f"left {left}, top {top}, width {width}, height {height} ({told.probability:.2f}); {told.shown}"]


def _view(_: GroundRequest, told: Grounded) -> PageView:
    left, top, width, height = told.box
    return PageView(
        summary=told.expression,
        box=told.box,
        verdicts=(f"Found, {percent(told.probability)} sure",),
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
        begin=_begin_as_class,
        notes=_not_to_be_found,
    ),
    scoring=TaskScoring(
        noun="expressions",
        key="box",
        shown=("accuracy",),
        score=score_referring,
        baselines=referring_baselines,
        baseline_regions=500,
    ),
    interface=TaskInterface(
        verb="ground",
        help="Find the region that an expression refers to, and draw its box.",
        words=InterfaceWords(
            does="finds the region that an expression means",
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
