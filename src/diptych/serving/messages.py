"""What is asked of a model and what it answers, as typed JSON: the service speaks it, and `--json` prints it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from diptych.core import Regions
from diptych.runtime.devices import Precision

if TYPE_CHECKING:
    from diptych.serving.deciding import Chosen, Found, Verdict
    from diptych.serving.predictor import Prediction

Text = Annotated[str, Field(min_length=1, max_length=500)]
Texts = Annotated[tuple[Text, ...], Field(max_length=16)]
PixelBox = tuple[int, int, int, int]  # COCO's left, top, width, height
LIKELIEST = 5  # answers that are told


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def line(self) -> str:
        """One line of JSON, without what is not there."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False)


class Asked(Message):
    model: str | None = Field(default=None, description="A name from /v1/models; default: the first that can.")


class CaptionRequest(Asked):
    captions: int = Field(default=1, ge=1, le=16, description="How many, the likeliest first.")
    beams: int | None = Field(default=None, ge=1, le=16, description="Captions followed at once; 1 is greedy.")
    length_bonus: float | None = Field(
        default=None, ge=-100, le=100, description="Added for each word to a beam's log-probability."
    )
    length_penalty: float | None = Field(
        default=None, ge=0, le=10, description="Or it is divided by words to this power; 1 is the mean."
    )
    sample: bool = Field(default=False, description="Draw words by chance in place of a search.")
    temperature: PositiveFloat | None = Field(default=None, description="Below 1 likely words become likelier.")
    top_k: PositiveInt | None = Field(default=None, description="Draw from so many words, the likeliest.")
    top_p: float | None = Field(
        default=None, gt=0, le=1, description="Draw from the fewest words that have this probability together."
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="The same seed, the same drawn captions.")
    min_words: int | None = Field(default=None, ge=0, le=64, description="No caption ends before.")
    max_words: int | None = Field(default=None, ge=1, le=64, description="Each is cut there; its end counts as one.")
    no_repeat_ngram: PositiveInt | None = Field(default=None, description="No run of so many words comes twice.")
    explain: bool = Field(default=False, description="Also the regions, and what each weighed on each word.")


class AskRequest(Asked):
    question: Text
    explain: bool = Field(default=False, description="Also the regions, and what each weighed on the answer.")


class GroundRequest(Asked):
    expression: Text = Field(description="Such as 'the dog left of the bench'.")


class ChooseRequest(Asked):
    question: Text = Field(description="[0] in it is the first region, best first.")
    answers: Texts = Field(description="Two or more.")
    rationales: Texts = Field(default=(), description="Two or more reasons, or none.")


class VerifyRequest(Asked):
    statement: Text = Field(description="Such as 'there are two dogs'.")


class SearchRequest(Asked):
    query: Text = Field(description="Such as 'a red kite over a beach'.")
    most: int = Field(default=12, ge=1, le=100, description="How many to show.")


class Region(Message):
    box: PixelBox
    label: str | None = Field(description="What the detector takes it for.")
    score: float = Field(description="The detector's confidence, 0 to 1.")


class Explanation(Message):
    """`weights[word][region]`: the log-probability in nats that the word loses without the region."""

    width: int
    height: int
    words: tuple[str, ...]
    regions: tuple[Region, ...]
    weights: tuple[tuple[float, ...], ...]


class Pictured(Message):
    picture: str = Field(description="The picture's name, as it was given.")
    precision: Precision | None = Field(default=None, description="In which the model computed it.")


class OtherCaption(Message):
    caption: str
    score: float


class Caption(Pictured):
    caption: str
    score: float = Field(description="Log-probability.")
    others: tuple[OtherCaption, ...] | None = None
    shown: str | None = None
    explanation: Explanation | None = None

    @property
    def captions(self) -> tuple[str, ...]:
        return (self.caption, *(other.caption for other in self.others or ()))


class OtherAnswer(Message):
    answer: str
    probability: float


class Answer(Pictured):
    question: str
    answer: str
    probability: float
    others: tuple[OtherAnswer, ...] = Field(description="The next likeliest.")
    shown: str | None = None
    explanation: Explanation | None = None


class Grounded(Pictured):
    expression: str
    box: PixelBox = Field(description="Left, top, width, height in pixels.")
    probability: float
    shown: str | None = None


class Choice(Pictured):
    question: str
    answer: str
    shares: tuple[float, ...] = Field(description="Of all answers, in their order; they add up to 1.")
    rationale: str | None = None
    rationale_shares: tuple[float, ...] | None = None


class Verified(Pictured):
    statement: str
    true: bool
    probability: float = Field(description="Of what is said.")


class Hit(Pictured):
    score: float


class Hits(Message):
    """The best first. `picture` of a service is an id for /v1/pictures/{id}, never a path."""

    query: str
    hits: tuple[Hit, ...]
    searched: int = Field(description="Pictures that could be read.")
    refused: int = Field(description="Pictures that could not.")


def caption_line(
    prediction: Prediction,
    picture: str,
    captions: int,
    explain: bool = False,
    shown: str | None = None,
) -> Caption:
    others = tuple(OtherCaption(caption=text, score=score) for text, score in prediction.others[: captions - 1])
    return Caption(
        picture=picture,
        precision=prediction.precision,
        caption=prediction.text,
        score=prediction.score,
        others=others or None,
        shown=shown,
        explanation=explain_prediction(prediction) if explain else None,
    )


def answer_line(
    prediction: Prediction,
    picture: str,
    question: str,
    explain: bool = False,
    shown: str | None = None,
) -> Answer:
    return Answer(
        picture=picture,
        precision=prediction.precision,
        question=question,
        answer=prediction.text,
        probability=prediction.score,
        others=tuple(OtherAnswer(answer=text, probability=score) for text, score in prediction.others),
        shown=shown,
        explanation=explain_prediction(prediction) if explain else None,
    )


def ground_line(
    found: Found, picture: str, expression: str, size: tuple[int, int], shown: str | None = None
) -> Grounded:
    """`size`: the picture's width and height in pixels."""
    return Grounded(
        picture=picture,
        precision=found.precision,
        expression=expression,
        box=found.pixels(*size),
        probability=found.score,
        shown=shown,
    )


def choice_line(
    chosen: Chosen,
    picture: str,
    question: str,
    answers: Sequence[str],
    rationales: Sequence[str],
) -> Choice:
    return Choice(
        picture=picture,
        precision=chosen.precision,
        question=question,
        answer=answers[chosen.answer],
        shares=chosen.answers,
        rationale=None if chosen.rationale is None else rationales[chosen.rationale],
        rationale_shares=chosen.rationales or None,
    )


def verify_line(verdict: Verdict, picture: str, statement: str) -> Verified:
    return Verified(
        picture=picture, precision=verdict.precision, statement=statement, true=verdict.true, probability=verdict.score
    )


def explain_prediction(prediction: Prediction) -> Explanation:
    regions = prediction.regions
    return Explanation(
        width=regions.size[0],
        height=regions.size[1],
        words=prediction.words,
        regions=tuple(_region(regions, row, prediction.class_names) for row in range(len(regions))),
        weights=tuple(tuple(round(weight, 4) for weight in row) for row in prediction.weights.tolist()),
    )


def _region(regions: Regions, row: int, class_names: Sequence[str]) -> Region:
    width, height = regions.size
    x1, y1, x2, y2 = (max(0.0, min(1.0, end)) for end in regions.boxes[row].tolist())
    left, top = round(x1 * width), round(y1 * height)
    kind = None if regions.classes is None or not class_names else class_names[int(regions.classes[row].argmax())]
    return Region(
        box=(left, top, round(x2 * width) - left, round(y2 * height) - top),
        label=kind,
        score=float(regions.scores[row]),
    )
