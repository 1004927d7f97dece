"""Visual commonsense reasoning: choose an answer, then its rationale (Zellers et al. 2019)."""

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
from diptych.runtime.errors import DataError, ServingError, counted
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks import interface
from diptych.tasks.baselines import labelled, vcr_baselines
from diptych.tasks.run import finite
from diptych.tasks.scores import Baselines, ItemScore, Scores, share_scores
from diptych.tasks.spec import Small, TaskScoring, TaskSpec, TaskTraining, TrainingRecords

Part = Literal["answer", "rationale"]
PARTS: tuple[Part, ...] = ("answer", "rationale")
PERSON = "person"
# Gender-neutral names replace tags of people, as in R2C and VL-BERT.
NAMES = ("Casey", "Riley", "Jessie", "Jackie", "Avery", "Jaime", "Peyton", "Kerry", "Jody", "Kendall", "Skyler",
         "Frankie", "Pat")  # fmt: skip
TaggedTokens = list[tuple[int, int | None]]  # tokens, each with the number of the object that it names, or None


@dataclass(frozen=True)
class Vcr:
    """Choose answers (Q->A) and rationales (QA->R) with one model, which scores the four candidates of a question.

    Inputs are `question [SEP] answer [SEP]` and `question right-answer [SEP] rationale [SEP]`, as in VL-BERT's code. A
    tag `[k]` is replaced by the name of object k. The tokens of the name refer to the object's region.
    """

    tokens: Tokens
    max_words: int = 48  # maximum number of tokens of both texts together; see `cut`

    name = "vcr"

    def samples(self, record: Record) -> list[Sample]:
        """Return two samples per question: one with its candidate answers, one with its candidate rationales.

        The objective splits a sample into candidates.
        """
        return [sample for sample in self._samples(record) if sample.truth["right"] is not None]

    def queries(self, record: Record) -> list[Sample]:
        """Return a sample per candidate.

        The candidate answers of a question share a `group`, and so do its candidate rationales.
        """
        return [one for sample in self._samples(record) for one in split_candidates(sample)]

    def _samples(self, record: Record) -> Iterator[Sample]:
        samples = (self._sample(record, choices, part) for choices in record.choices for part in PARTS)
        return (sample for sample in samples if sample is not None)

    def _sample(self, record: Record, choices: Choices, part: Part) -> Sample | None:
        """Build the sample of a question's answers or rationales.

        Return None for rationales if the question has none, or if its right answer is unknown (VCR's test set).
        """
        answered = f"{choices.question} {choices.answers[choices.answer]}" if choices.answer >= 0 else None
        if part == "rationale" and (answered is None or not choices.rationales):
            return None
        first = choices.question if part == "answer" or answered is None else answered
        texts = choices.answers if part == "answer" else choices.rationales
        right = choices.answer if part == "answer" else choices.rationale
        return self.build_sample(record, f"{choices.key}/{part}", first, texts, right)

    def build_sample(
        self, record: Record, key: str, first: str, texts: Sequence[str], right: int | None = None
    ) -> Sample:
        """Build a sample with one candidate per text of `texts`, each after the text `first`.

        `right`: index of the right text.
        """
        candidates = [self.candidate(first, text, record.objects) for text in texts]
        return Sample(
            key=key,
            picture=record.key,
            regions=record.regions,
            # The longest candidate, because the loader sorts samples by the length of this text.
            text=max((candidate.text for candidate in candidates), key=len),
            truth={"candidates": candidates, "right": right if right is not None and right >= 0 else None},
        )

    def candidate(self, first: str, second: str, objects: Sequence[Object]) -> Candidate:
        """Tokenise `first [SEP] second [SEP]` and link the tokens of object names to their objects."""
        sep = (self.tokens.vocabulary.sep, None)
        one, two = cut(self._words(first, objects), self._words(second, objects), self.max_words)
        words = [*one, sep, *two, sep]
        named = [NamedThing(place, k, objects[k].box) for place, (_, k) in enumerate(words) if k is not None]
        return Candidate(torch.tensor([token for token, _ in words]), tuple(named))

    def _words(self, text: str, objects: Sequence[Object]) -> TaggedTokens:
        names = names_of(objects)
        words: TaggedTokens = []
        for piece in split_at_tags(text):
            if isinstance(piece, int) and piece < len(objects):
                words += [(token, piece) for token in self.tokens.encode(names[piece])]
            else:  # a tag without an object stays in the text; `diptych check` lists such tags
                plain = piece if isinstance(piece, str) else f"[{piece}]"
                words += [(token, None) for token in self.tokens.encode(plain)]
        return words

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return a score per candidate. `chosen` then picks the best candidate of each group."""
        scores = model.heads["choice"](model(batch.for_head("choice"))).float().reshape(len(batch))
        finite(scores, batch)
        rows = zip(batch.keys, batch.groups, batch.truths, scores.tolist(), strict=True)
        return [
            {"key": key, "group": group, "choice": truth["choice"], "score": score} for key, group, truth, score in rows
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the accuracy (times 100) of answers (Q->A), rationales (QA->R), and both together (Q->AR)."""
        return {name: 100 * float(right.mean()) for name, (right, _) in hits(chosen(predictions), records).items()}


def cut(first: TaggedTokens, second: TaggedTokens, most: int) -> tuple[TaggedTokens, TaggedTokens]:
    """Cut the longer text at its end until both texts together have at most `most` tokens, as in VL-BERT's code.

    If both are equally long, the second text loses a token.
    """
    spare = len(first) + len(second) - most
    if spare <= 0:
        return first, second
    ahead = len(first) - len(second)
    alone = min(spare, abs(ahead))
    of_first = (alone if ahead > 0 else 0) + (spare - alone) // 2
    return first[: len(first) - of_first], second[: len(second) - (spare - of_first)]


def names_of(objects: Sequence[Object]) -> list[str]:
    """Return a name for each object: its kind, such as "dog". People get the names of NAMES in turn."""
    people = [number for number, thing in enumerate(objects) if thing.kind == PERSON]
    return [
        NAMES[people.index(number) % len(NAMES)] if thing.kind == PERSON else thing.kind
        for number, thing in enumerate(objects)
    ]


def chosen(predictions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return {group: index of its best candidate}. On a tie, it is the first candidate."""
    best: dict[str, tuple[float, int]] = {}
    for prediction in predictions:
        score, choice = prediction["score"], prediction["choice"]
        if prediction["group"] not in best or score > best[prediction["group"]][0]:
            best[prediction["group"]] = score, choice
    return {group: choice for group, (_, choice) in best.items()}


def hits(predicted: dict[str, int], records: Sequence[Record]) -> dict[str, tuple[NDArray[np.float64], list[str]]]:
    """Return {name of the score: (1.0 (right) or 0.0 for each question, keys of their images)}.

    For a question without rationales, Q->AR counts only the answer. Raises DataError if no right answer is known.
    """
    rows: dict[str, tuple[list[float], list[str]]] = {"Q->A": ([], []), "QA->R": ([], []), "Q->AR": ([], [])}

    def add(name: str, right: bool, picture: str) -> None:
        rows[name][0].append(float(right))
        rows[name][1].append(picture)

    for picture, choices in [(record.key, choices) for record in records for choices in labelled(record)]:
        answered = predicted[f"{choices.key}/answer"] == choices.answer
        add("Q->A", answered, picture)
        reasoned = True
        if choices.rationale is not None:
            reasoned = predicted[f"{choices.key}/rationale"] == choices.rationale
            add("QA->R", reasoned, picture)
        add("Q->AR", answered and reasoned, picture)
    if not rows["Q->A"][0]:
        raise DataError("no question has choices and a known answer, so none can be scored; choose another --split")
    return {name: (np.array(right), pictures) for name, (right, pictures) in rows.items() if right}


def score_vcr(predicted: Mapping[str, int], records: Sequence[Record], baselines: Baselines | None = None) -> Scores:
    """Compute Q->A, QA->R and Q->AR. `predicted` maps `KEY/answer` and `KEY/rationale` to the chosen index."""
    rows = hits(dict(predicted), records)
    if "QA->R" not in rows:
        rows.pop("Q->AR")
    return share_scores("vcr", rows, "questions", baselines, tuple(_rows(predicted, records)))


def _rows(predicted: Mapping[str, int], records: Sequence[Record]) -> Iterator[ItemScore]:
    """Yield the score of each answer and of each rationale."""
    for picture, one in [(record.key, one) for record in records for one in labelled(record)]:
        reasons = [("rationale", one.rationales, one.rationale)] if one.rationale is not None else []
        for part, texts, right in [("answer", one.answers, one.answer), *reasons]:
            given = predicted[f"{one.key}/{part}"]
            value = float(given == right)
            yield ItemScore(f"{one.key}/{part}", picture, one.question, texts[given], texts[right], value, part)


def _without_region(_: Task, records: TrainingRecords) -> Iterator[str]:
    """Yield a warning about objects that questions refer to, but that no region covers."""
    named = [(record, c.key, k) for record in records.sampled() for c in record.choices for k in c.named]
    lost = [key for record, key, k in named if not _shown(record, k)]
    if lost:
        yield f"{len(lost)} of {len(named)} objects in questions{records.scope} have no region (first: {lost[0]})"


def _shown(record: Record, thing: int) -> bool:
    if record.regions is None or thing >= len(record.objects):
        return False
    return region_of(thing, record.objects[thing].box, record.regions) != IGNORE


class VcrObjectives(SeenClasses):
    """Fine-tuning for VCR.

    `region_classes` adds region classification: of masked regions (VL-BERT's paper) or of all regions (its code).
    """

    without_classes = "region_classes=none"
    kind: Literal["vcr"] = "vcr"
    """Kind of objectives."""
    vcr_loss: Literal["softmax", "sigmoid"] = "softmax"
    """Loss: a softmax over the candidates of a question, or a sigmoid for each candidate."""
    region_classes: Literal["none", "masked", "every"] = "none"
    """Regions that are also classified: none, the masked ones, or every one without masking."""
    region_weight: NonNegativeFloat = 1.0
    """Weight of region classification."""
    words: NonNegativeFloat = 0.0
    """Weight of masked language modelling in all four texts; 0: no masking."""
    masking: Source = "paper"
    """How word pieces are masked: always with [MASK] (paper), or 80/10/10 as in VL-BERT's pre-training (official)."""
    rate: Share = 0.15
    """Share of words and of regions that are masked."""
    region_hidden: Share = 1.0
    """Share of the masked regions whose feature is hidden; the others keep it."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Return the schedule.

        ChooseText must be first: it splits the candidates, so that each candidate is masked separately.
        """
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


RATIONALE_HELP = "Rationale to choose from; pass the option at least twice; default: no rationale is chosen."


class ChooseRequest(interface.TaskRequest):
    question: Annotated[interface.Text, interface.Form("Question", "what is [0] doing?", argument="question")] = Field(
        description="Question about the image; [0] in it is the region with the highest score, [1] the next."
    )
    answers: Annotated[
        interface.Texts,
        interface.Form(
            "Answers, one per line", argument="answers", help="Answers to choose from, two or more; VCR has four."
        ),
    ] = Field(description="Two or more.")
    rationales: Annotated[
        interface.Texts,
        interface.Form("Reasons, one per line, or none", option="rationale", help=RATIONALE_HELP),
    ] = Field(default=(), description="Two or more reasons, or none.")


class Choice(interface.TaskAnswer):
    question: str
    answer: str
    shares: tuple[float, ...] = Field(description="Probabilities of the answers, in their order; they add up to 1.")
    rationale: str | None = None
    rationale_shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ChoiceScores:
    """The index of the best answer, the index of the best rationale for it, and the probabilities of all candidates."""

    answer: int
    answers: tuple[float, ...]
    precision: Precision
    rationale: int | None = None
    rationales: tuple[float, ...] = ()


def _choose(model: interface.TaskModel, record: Record, request: ChooseRequest) -> ChoiceScores:
    question, answers, rationales = request.question, request.answers, request.rationales
    for text in (question, *answers, *rationales):
        interface.require_text("a question, answer or rationale", text, "what is [0] doing?")
    if len(answers) < 2 or len(rationales) == 1:
        raise ServingError(
            f"found {counted(answers, 'answers')} and {counted(rationales, 'rationales')}; pass at least two "
            "answers, and either none or at least two rationales"
        )
    record = model.with_objects(record, (question, *answers, *rationales))
    of_answers = _shares(model, record, Choices("0", question, answers, -1), "answer")
    best, precision = of_answers.index(max(of_answers)), model.precision(len(answers))
    if not rationales:
        return ChoiceScores(best, of_answers, precision)
    of_rationales = _shares(model, record, Choices("0", question, answers, best, rationales), "rationale")
    return ChoiceScores(best, of_answers, precision, of_rationales.index(max(of_rationales)), of_rationales)


def _shares(model: interface.TaskModel, record: Record, choices: Choices, part: Part) -> tuple[float, ...]:
    predicted = model.ask([replace(record, choices=(choices,))])
    scores = [prediction["score"] for prediction in predicted if prediction["group"] == f"{choices.key}/{part}"]
    return tuple(torch.tensor(scores).softmax(0).tolist())


def _message(choice: ChoiceScores, request: ChooseRequest, picture: str) -> Choice:
    return Choice(
        picture=picture,
        precision=choice.precision,
        question=request.question,
        answer=request.answers[choice.answer],
        shares=choice.answers,
        rationale=None if choice.rationale is None else request.rationales[choice.rationale],
        rationale_shares=choice.rationales or None,
    )


def _view(request: ChooseRequest, message: Choice) -> interface.PageView:
    verdicts, tables = [message.answer], [interface.ShareTable.of("Answers", request.answers, message.shares)]
    if message.rationale_shares is not None:
        verdicts.append(f"because {message.rationale}")
        tables.append(interface.ShareTable.of("Reasons", request.rationales, message.rationale_shares))
    return interface.PageView(
        summary=f"{message.question} {message.answer}", verdicts=tuple(verdicts), tables=tuple(tables)
    )


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
        # A text is a question and an answer, so it needs 48 tokens. With a batch of 16, VCR's accuracy stays at chance
        # (experiments/LOG.md).
        small=Small(VcrObjectives(), max_words=48),
        notes=_without_region,
        separators=2,
        cuts_texts=False,  # each text is cut by `cut`, which shortens both texts of a pair together
    ),
    scoring=TaskScoring(
        noun="questions",
        key="choice",
        shown=("Q->A", "QA->R", "Q->AR"),
        score=score_vcr,
        baselines=vcr_baselines,
        collect=chosen,
    ),
    interface=interface.TaskInterface(
        verb="choose",
        help=TASK_VERBS["choose"].help,
        words=interface.InterfaceWords(
            does="chooses an answer to a question, and its reason",
            example='print(model.choose("photo.jpg", "what is it doing?", ["it sleeps", "it runs"]).answer)',
        ),
        request=ChooseRequest,
        response=Choice,
        answer=lambda model, requests: [_choose(model, *request) for request in requests],
        message=_message,
        lines=lambda message, _: [line for line in (message.answer, message.rationale) if line is not None],
        view=_view,
    ),
)
