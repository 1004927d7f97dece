"""Visual commonsense reasoning: choose an answer, then the rationale for the right answer (Zellers et al. 2019)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat

from diptych.core import BIDIRECTIONAL, IGNORE, Batch, Choices, Object, Record, Sample, Task, Vocabulary, split_at_tags
from diptych.core.shares import Share, Source
from diptych.data.store.tokens import Tokens
from diptych.objectives import (
    Candidate,
    ChooseText,
    MaskedLanguage,
    MaskedRegionClass,
    NamedThing,
    Schedule,
    SeenRegionClass,
    region_of,
    split_candidates,
)
from diptych.objectives.settings import SCHEMES, SeenClasses, weighed
from diptych.runtime.devices import Precision
from diptych.runtime.errors import DataError, ServingError
from diptych.tasks.baselines import labelled, vcr_baselines
from diptych.tasks.interface import (
    Form,
    InterfaceWords,
    PageView,
    ShareTable,
    TaskAnswer,
    TaskInterface,
    TaskModel,
    TaskRequest,
    Text,
    Texts,
    require_text,
)
from diptych.tasks.run import finite
from diptych.tasks.scores import Baselines, Scores, share_scores
from diptych.tasks.spec import Small, TaskScoring, TaskSpec, TaskTraining, TrainingRecords

Part = Literal["answer", "rationale"]
PARTS: tuple[Part, ...] = ("answer", "rationale")
PERSON = "person"
# Names that tell no gender stand for people, whom VCR knows as person 1, person 2: as R2C and VL-BERT do.
NAMES = ("Casey", "Riley", "Jessie", "Jackie", "Avery", "Jaime", "Peyton", "Kerry", "Jody", "Kendall", "Skyler",
         "Frankie", "Pat")  # fmt: skip
Words = list[tuple[int, int | None]]  # a token, and the thing that its word names


@dataclass(frozen=True)
class Vcr:
    """Q->A and QA->R with one model: four texts a question, scored against each other.

    question [SEP] answer [SEP], and question right-answer [SEP] rationale [SEP] (VL-BERT's code joins question and
    answer so). A tag `[k]` becomes the name of its thing, and its words point at the thing's region.
    """

    tokens: Tokens
    max_words: int = 48  # of both sentences; the longer one is cut

    name = "vcr"

    def samples(self, record: Record) -> list[Sample]:
        """One a question and part; its four texts become samples of their own when the objective prepares them."""
        return [
            sample
            for choices in record.choices
            for part in PARTS
            if (sample := self._sample(record, choices, part)) is not None and sample.truth["right"] is not None
        ]

    def queries(self, record: Record) -> list[Sample]:
        """Four a question and part, which share a `group`."""
        return [
            one
            for choices in record.choices
            for part in PARTS
            if (sample := self._sample(record, choices, part)) is not None
            for one in split_candidates(sample)
        ]

    def _sample(self, record: Record, choices: Choices, part: Part) -> Sample | None:
        """None where there are no rationales, or the answer that they are for is not known (VCR's test set)."""
        answered = f"{choices.question} {choices.answers[choices.answer]}" if choices.answer >= 0 else None
        if part == "rationale" and (answered is None or not choices.rationales):
            return None
        first = choices.question if part == "answer" or answered is None else answered
        texts = choices.answers if part == "answer" else choices.rationales
        right = choices.answer if part == "answer" else choices.rationale
        return self.asked(record, f"{choices.key}/{part}", first, texts, right)

    def asked(self, record: Record, key: str, first: str, texts: Sequence[str], right: int | None = None) -> Sample:
        """Which of `texts` follows `first`, by one sample of several candidates."""
        candidates = [self.candidate(first, text, record.objects) for text in texts]
        return Sample(
            key=key,
            picture=record.key,
            regions=record.regions,
            text=max((candidate.text for candidate in candidates), key=len),  # how long it is, for the loader
            truth={"candidates": candidates, "right": right if right is not None and right >= 0 else None},
        )

    def candidate(self, first: str, second: str, objects: Sequence[Object]) -> Candidate:
        sep = (self.tokens.vocabulary.sep, None)
        one, two = cut(self._words(first, objects), self._words(second, objects), self.max_words)
        words = [*one, sep, *two, sep]
        named = [NamedThing(place, k, objects[k].box) for place, (_, k) in enumerate(words) if k is not None]
        return Candidate(torch.tensor([token for token, _ in words]), tuple(named))

    def _words(self, text: str, objects: Sequence[Object]) -> Words:
        names = names_of(objects)
        words: Words = []
        for piece in split_at_tags(text):
            if isinstance(piece, int) and piece < len(objects):
                words += [(token, piece) for token in self.tokens.encode(names[piece])]
            else:  # a tag of nothing stays as it is; `diptych check` names it
                plain = piece if isinstance(piece, str) else f"[{piece}]"
                words += [(token, None) for token in self.tokens.encode(plain)]
        return words

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """How well each text fits. The best of its group is what the model chooses (`chosen`)."""
        scores = model.heads["choice"](model(batch.for_head("choice"))).float().reshape(len(batch))
        finite(scores, batch)
        rows = zip(batch.keys, batch.groups, batch.truths, scores.tolist(), strict=True)
        return [
            {"key": key, "group": group, "choice": truth["choice"], "score": score} for key, group, truth, score in rows
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Accuracy of Q->A, QA->R and both at once (Q->AR), times 100."""
        return {name: 100 * float(right.mean()) for name, (right, _) in hits(chosen(predictions), records).items()}


def cut(first: Words, second: Words, most: int) -> tuple[Words, Words]:
    """The ends of the longer one go until both have `most` words, as VL-BERT's code does; of equals, the second's."""
    spare = len(first) + len(second) - most
    if spare <= 0:
        return first, second
    ahead = len(first) - len(second)
    alone = min(spare, abs(ahead))
    of_first = (alone if ahead > 0 else 0) + (spare - alone) // 2
    return first[: len(first) - of_first], second[: len(second) - (spare - of_first)]


def names_of(objects: Sequence[Object]) -> list[str]:
    """What each thing is called: its kind, and people by names, in the order in which the picture has them."""
    people = [number for number, thing in enumerate(objects) if thing.kind == PERSON]
    return [
        NAMES[people.index(number) % len(NAMES)] if thing.kind == PERSON else thing.kind
        for number, thing in enumerate(objects)
    ]


def chosen(predictions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The best text of each group; of equals, the first."""
    best: dict[str, tuple[float, int]] = {}
    for prediction in predictions:
        score, choice = prediction["score"], prediction["choice"]
        if prediction["group"] not in best or score > best[prediction["group"]][0]:
            best[prediction["group"]] = score, choice
    return {group: choice for group, (_, choice) in best.items()}


def hits(predicted: dict[str, int], records: Sequence[Record]) -> dict[str, tuple[NDArray[np.float64], list[str]]]:
    """Of each figure: 1 where it is right, and the picture of each. Without rationales the answer alone counts."""
    found: dict[str, tuple[list[float], list[str]]] = {"Q->A": ([], []), "QA->R": ([], []), "Q->AR": ([], [])}

    def add(name: str, right: bool, picture: str) -> None:
        found[name][0].append(float(right))
        found[name][1].append(picture)

    for picture, choices in [(record.key, choices) for record in records for choices in labelled(record)]:
        answered = predicted[f"{choices.key}/answer"] == choices.answer
        add("Q->A", answered, picture)
        reasoned = True
        if choices.rationale is not None:
            reasoned = predicted[f"{choices.key}/rationale"] == choices.rationale
            add("QA->R", reasoned, picture)
        add("Q->AR", answered and reasoned, picture)
    if not found["Q->A"][0]:
        raise DataError(
            "no record has questions with choices of which one is known to be right; choose another split with --split"
        )
    return {name: (np.array(right), pictures) for name, (right, pictures) in found.items() if right}


def score_vcr(predicted: Mapping[str, int], records: Sequence[Record], baselines: Baselines | None = None) -> Scores:
    """Q->A, QA->R and Q->AR; `said` has the text chosen for `KEY/answer` and `KEY/rationale`."""
    found = hits(dict(predicted), records)
    if "QA->R" not in found:
        found.pop("Q->AR")
    return share_scores("vcr", found, "questions", baselines)


def _unshown(_: Task, records: TrainingRecords) -> Iterator[str]:
    """Objects that questions name and no region shows."""
    named = [(record, c.key, k) for record in records.seen() for c in record.choices for k in c.named]
    lost = [key for record, key, k in named if not _shown(record, k)]
    if lost:
        yield (
            f"{len(lost)} of {len(named)} objects that questions name{records.first} are read without a region: none "
            f"shows them (the first: {lost[0]})"
        )


def _shown(record: Record, thing: int) -> bool:
    if record.regions is None or thing >= len(record.objects):
        return False
    return region_of(thing, record.objects[thing].box, record.regions) != IGNORE


class VcrObjectives(SeenClasses):
    """VCR. VL-BERT's paper adds masked region classification; its code asks the class of every region, none hidden."""

    kind: Literal["vcr"] = "vcr"
    """Kind of objectives."""
    vcr_loss: Literal["softmax", "sigmoid"] = "softmax"
    """softmax: the texts of a question against each other; sigmoid: each by itself."""
    region_classes: Literal["none", "masked", "every"] = "none"
    """Which regions' classes are asked beside: none, masked ones, or every one with none hidden."""
    region_weight: NonNegativeFloat = 1.0
    """Weight of the regions' classes."""
    words: NonNegativeFloat = 0.0
    """Weight of masked words of all four texts; 0: none is hidden."""
    masking: Source = "paper"
    """paper: a chosen piece becomes [MASK]; official: 80/10/10, as VL-BERT's code does in pre-training."""
    rate: Share = 0.15
    """Share of the words and of the regions that are hidden."""
    region_hidden: Share = 1.0
    """Share of the chosen regions that are hidden, where masked ones are asked; the others keep their feature."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """What makes the groups comes first, or four texts would share what is hidden."""
        hidden = MaskedLanguage(
            vocabulary, rate=self.rate, scheme=SCHEMES[self.masking], attention=((BIDIRECTIONAL, 1.0),), hides_end=False
        )
        every = self.region_classes == "every"
        regions = MaskedRegionClass(*(1.0, 0.0) if every else (self.rate, self.region_hidden))
        return weighed(
            (ChooseText(self.vcr_loss), 1.0),
            (hidden, self.words),
            (regions, self.region_weight if self.region_classes != "none" else 0.0),
            (SeenRegionClass(), self.seen_classes),
        )


class ChooseRequest(TaskRequest):
    question: Annotated[
        Text,
        Form(
            "Question",
            "what is [0] doing?",
            argument="question",
            help="Question about the picture; [0] in it is the region of the highest score, [1] the next.",
        ),
    ] = Field(description="[0] in it is the first region, best first.")
    answers: Annotated[
        Texts,
        Form("Answers, one a line", argument="answers", help="Answers to choose from, two or more; VCR has four."),
    ] = Field(description="Two or more.")
    rationales: Annotated[
        Texts,
        Form(
            "Reasons, one a line, or none",
            option="rationale",
            help="Rationale to choose from; give the option twice or more often; default: none is chosen.",
        ),
    ] = Field(default=(), description="Two or more reasons, or none.")


class Choice(TaskAnswer):
    question: str
    answer: str
    shares: tuple[float, ...] = Field(description="Of all answers, in their order; they add up to 1.")
    rationale: str | None = None
    rationale_shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ChoiceScores:
    """The number of the best answer, and of the best rationale for it; the shares that all of them have."""

    answer: int
    answers: tuple[float, ...]
    precision: Precision
    rationale: int | None = None
    rationales: tuple[float, ...] = ()


def choose(model: TaskModel, asked: Sequence[tuple[Record, ChooseRequest]]) -> list[ChoiceScores]:
    return [_choose(model, record, request) for record, request in asked]


def _choose(model: TaskModel, record: Record, asked: ChooseRequest) -> ChoiceScores:
    question, answers, rationales = asked.question, asked.answers, asked.rationales
    for text in (question, *answers, *rationales):
        require_text("a question, answer or rationale", text, "what is [0] doing?")
    if len(answers) < 2 or len(rationales) == 1:
        raise ServingError(
            f"{len(answers)} answers and {len(rationales)} rationales leave no choice; give at least two answers, and "
            "two rationales or none"
        )
    record = model.with_objects(record, (question, *answers, *rationales))
    of_answers = _shares(model, record, Choices("0", question, answers, -1), "answer")
    best, precision = of_answers.index(max(of_answers)), model.precision(len(answers))
    if not rationales:
        return ChoiceScores(best, of_answers, precision)
    of_rationales = _shares(model, record, Choices("0", question, answers, best, rationales), "rationale")
    return ChoiceScores(best, of_answers, precision, of_rationales.index(max(of_rationales)), of_rationales)


def _shares(model: TaskModel, record: Record, choices: Choices, part: Part) -> tuple[float, ...]:
    predicted = model.ask([replace(record, choices=(choices,))])
    scores = [prediction["score"] for prediction in predicted if prediction["group"] == f"{choices.key}/{part}"]
    return tuple(torch.tensor(scores).softmax(0).tolist())


def _message(chosen: ChoiceScores, asked: ChooseRequest, picture: str) -> Choice:
    return Choice(
        picture=picture,
        precision=chosen.precision,
        question=asked.question,
        answer=asked.answers[chosen.answer],
        shares=chosen.answers,
        rationale=None if chosen.rationale is None else asked.rationales[chosen.rationale],
        rationale_shares=chosen.rationales or None,
    )


def _view(asked: ChooseRequest, told: Choice) -> PageView:
    verdicts, tables = [told.answer], [ShareTable.of("Answers", asked.answers, told.shares)]
    if told.rationale_shares is not None:
        verdicts.append(f"because {told.rationale}")
        tables.append(ShareTable.of("Reasons", asked.rationales, told.rationale_shares))
    return PageView(summary=f"{told.question} {told.answer}", verdicts=tuple(verdicts), tables=tuple(tables))


VCR = TaskSpec(
    name="vcr",
    title="Visual commonsense reasoning",
    learns="choose",
    field="choices",
    head="choice",
    build=lambda given: Vcr(given.tokens, given.max_words),
    training=TaskTraining(
        watched="Q->AR",
        objectives=(VcrObjectives,),
        # Texts are long, and a question is read four times; in batches of 16 it stays at chance (docs/log.md).
        small=Small(VcrObjectives(), max_words=48),
        notes=_unshown,
        separators=2,
        cuts_texts=False,  # two sentences together, by a rule of their own
    ),
    scoring=TaskScoring(
        noun="questions",
        key="choice",
        shown=("Q->A", "QA->R", "Q->AR"),
        score=score_vcr,
        baselines=vcr_baselines,
        collect=chosen,
    ),
    interface=TaskInterface(
        verb="choose",
        help="Choose the right one of some answers, and the reason for it.",
        words=InterfaceWords(
            does="chooses among answers, and the reason",
            example='print(model.choose("photo.jpg", "what is it doing?", ["it sleeps", "it runs"]).answer)',
        ),
        request=ChooseRequest,
        response=Choice,
        answer=choose,
        message=_message,
        lines=lambda told, _: [line for line in (told.answer, told.rationale) if line is not None],
        view=_view,
    ),
)
