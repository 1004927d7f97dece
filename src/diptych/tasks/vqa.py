"""Visual question answering as classification over frequent answers, which is usual for VQA v2."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from diptych.core import Batch, Question, Record, Sample, Task, Vocabulary, collate
from diptych.core.shares import AnswerForm
from diptych.data.store.tokens import Tokens
from diptych.metrics.bootstrap import bootstrap_interval, paired_interval, rows_by_picture
from diptych.metrics.vqa import answer_accuracy, first_words, normalise_answer, vqa_scores
from diptych.models.heads import SlotAnswerHead, WordHead, answer_probabilities
from diptych.objectives import AnswerQuestion, Schedule, SeenRegionClass
from diptych.objectives.settings import SeenClasses, weighed
from diptych.runtime.devices import predicting
from diptych.runtime.errors import RecipeError, counted
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks import interface
from diptych.tasks.answers import UNKNOWN, Answers, answered_questions, outside_notes, rule_notes
from diptych.tasks.baselines import vqa_baselines
from diptych.tasks.calibration import FEWEST, Calibration, fit_temperature
from diptych.tasks.influence import weigh_answer
from diptych.tasks.run import encode, finite
from diptych.tasks.scores import Baselines, ItemScore, Score, Scores, present, score_of
from diptych.tasks.spec import Heads, Predict, Small, TaskOptions, TaskScoring, TaskSpec, TaskTraining, TrainingRecords

LIKELIEST = 5  # number of answers in a response
UNSURE = "Not sure: on validation questions, answers this improbable were more often wrong than right."
FIRST_WORDS = 10  # scores are also computed for the questions with each of the 10 most frequent pairs of first words


@dataclass(frozen=True)
class Vqa:
    """Visual question answering: one class per answer of the model's list, one sample per question."""

    tokens: Tokens
    answers: Answers
    max_words: int = 20
    slot: bool = False  # True: [MASK] [SEP] follows the question, and the answer is predicted at [MASK]
    form: AnswerForm = "binary"  # binary: one sigmoid per answer; softmax: one softmax over all answers

    name = "vqa"

    def samples(self, record: Record) -> list[Sample]:
        """Return a sample for each answered question. With softmax, at least one answer must be in the model's list.

        With binary cross-entropy, other questions are kept, with all targets 0, as in VL-BERT's code.
        """
        queries = zip(record.questions, self.queries(record), strict=True)
        return [sample for question, sample in queries if self.trains_on(question)]

    def trains_on(self, question: Question) -> bool:
        """Return True if a question has a training target."""
        return bool(question.answers if self.form == "binary" else self.answers.scores(question.answers))

    def queries(self, record: Record) -> list[Sample]:
        vocabulary = self.tokens.vocabulary
        slot = torch.tensor([vocabulary.mask, vocabulary.sep] if self.slot else [], dtype=torch.long)
        samples = []
        for question in record.questions:
            text = torch.cat([encode(self.tokens, question.text, self.max_words), slot])
            truth = {"answer_scores": self.answers.scores(question.answers)}
            samples.append(Sample(question.key, record.key, record.regions, text, truth=truth))
        return samples

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        return [
            {"key": key, "answer": answer, "score": score}
            for key, ((answer, score),) in zip(batch.keys, self.likeliest(model, batch, 1), strict=True)
        ]

    def likeliest(self, model: Any, batch: Batch, most: int) -> list[list[tuple[str, float]]]:
        """Return (answer, probability) of the most probable answers (at most `most`) to each question, best first."""
        logits = self._logits(model, batch)
        finite(logits[..., 1:], batch)
        probabilities = answer_probabilities(logits / self.answers.temperature, self.form == "softmax")
        best, numbers = probabilities.topk(min(most, probabilities.shape[-1] - 1), -1)
        return [
            [(self.answers.names[number], score) for number, score in zip(*row, strict=True)]
            for row in zip(numbers.tolist(), best.tolist(), strict=True)
        ]

    def log_probabilities(self, model: Any, batch: Batch) -> Float[Tensor, "B A"]:
        """Return the log-probability of each answer: log-sigmoid or log-softmax, as in training."""
        logits = self._logits(model, batch)
        if logits.dim() == 2 and self.form == "binary":
            return logsigmoid(logits)  # log(sigmoid(x)) would underflow for very negative x
        if logits.dim() == 2:
            return logits.log_softmax(-1)
        return answer_probabilities(logits).log()

    def _logits(self, model: Any, batch: Batch) -> Float[Tensor, "B *two A"]:
        """Return the logits of all answers. Class 0 ("any other answer") gets -inf, so it is never predicted."""
        logits: Tensor = model.heads["answer"](model(batch.for_head("answer"))).float()
        if self.answers.names[0] == UNKNOWN:
            logits[..., 0] = -torch.inf
        return logits

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the official VQA accuracy (times 100) over all questions, and for each kind of answer."""
        given = {p["key"]: p["answer"] for p in predictions}
        scores = vqa_scores(given, [question for _, question in _scorable(records)])
        return {"accuracy": 100 * scores.pop("all")} | {f"accuracy {kind}": 100 * s for kind, s in scores.items()}


class _Logits(Vqa):
    """Like `Vqa`, but predicts the logits of all answers."""

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        rows = self._logits(model, batch).cpu()
        return [{"key": key, "logits": row} for key, row in zip(batch.keys, rows, strict=True)]


def calibrate(task: Task, predict: Predict, records: Sequence[Record]) -> Calibration | None:
    """Fit the temperature of answers on `records`. Return None if fewer than 100 questions are answered."""
    assert isinstance(task, Vqa)
    if len(questions := {one.key: one for one in answered_questions(records)}) < FEWEST:
        return None
    plain = _Logits(**{field.name: getattr(task, field.name) for field in fields(task)})
    rows = [row for row in predict(plain) if row["key"] in questions]
    logits, softmax = torch.stack([row["logits"] for row in rows]), task.form == "softmax"
    best = answer_probabilities(logits, softmax).argmax(-1)
    given = zip(rows, best.tolist(), strict=True)
    right = [answer_accuracy(task.answers.names[number], questions[row["key"]].answers) for row, number in given]

    def probable(temperature: float) -> Tensor:
        return answer_probabilities(logits / temperature, softmax).gather(-1, best[:, None])[:, 0]

    return fit_temperature(probable, torch.tensor(right))


def score_vqa(
    predictions: Mapping[str, str], records: Sequence[Record], baselines: Baselines | None = None, coverage: float = 1.0
) -> Scores:
    """Compute the VQA accuracy over all questions and for each kind of answer. `baselines` come from `vqa_baselines`.

    Every question with reference answers needs a prediction. Other questions are not scored.
    """
    baselines = baselines or Baselines()
    pictures, questions = zip(*_scorable(records), strict=True)
    vqa_scores(predictions, questions)  # raises an error if a question has no prediction
    unanswered = sum(not question.answers for record in records for question in record.questions)
    right = np.array([answer_accuracy(predictions[question.key], question.answers) for question in questions])
    openings = [first_words(question.text) for question in questions]
    begun = Counter(openings)
    usual = {words: count for words, count in begun.most_common(FIRST_WORDS) if count >= FEWEST}
    scores = []
    for name, known, chosen in _groups([one.kind for one in questions], openings, usual if len(begun) > 1 else ()):
        interval = bootstrap_interval(rows_by_picture(right[chosen], [pictures[at] for at in chosen]))
        scores.append(baselines.score(name, interval, known))
    listed = ", ".join(f"{words} {count:,}" for words, count in usual.items())
    by_words = [f"number of questions by their first two words, from {FEWEST} questions: {listed}"] if usual else []
    first = "intervals: 95%, 1,000 bootstrap resamples of images, each with all its questions"
    left_out = [f"left out because they have no answers: {counted(unanswered, 'questions')}"] if unanswered else []
    notes = (first, *left_out, *rule_notes(questions), *by_words, *baselines.notes)
    rows = tuple(
        ItemScore(one.key, picture, one.text, predictions[one.key],
                  Counter(map(normalise_answer, one.answers)).most_common(1)[0][0], value, one.kind,
                  (baselines.predicted or {}).get(one.key, ""))
        for picture, one, value in zip(pictures, questions, right.tolist(), strict=True)
    )  # fmt: skip
    return Scores("vqa", tuple(scores), len(set(pictures)), len(questions), coverage, notes, rows=rows)


def _groups(
    kinds: Sequence[str], openings: Sequence[str], usual: Iterable[str]
) -> Iterator[tuple[str, str | None, list[int]]]:
    """Yield each score's name, the name of its baseline, and the indices of its questions.

    `kinds`, `openings`: of each question. `usual`: the openings that have a score.
    """
    yield "accuracy", "all", [*range(len(kinds))]
    for kind in dict.fromkeys(kinds):
        yield f"accuracy {kind}", kind, [at for at, one in enumerate(kinds) if one == kind]
    for words in usual:
        yield f"accuracy of {words}", None, [at for at, one in enumerate(openings) if one == words]


def vqa_gain(first: Mapping[str, str], second: Mapping[str, str], records: Sequence[Record]) -> Score:
    """Return the difference in accuracy, second minus first, with a paired bootstrap interval over images."""
    pictures, questions = zip(*_scorable(records), strict=True)
    ours, theirs = (
        rows_by_picture([answer_accuracy(predicted[one.key], one.answers) for one in questions], pictures)
        for predicted in (second, first)
    )
    return score_of("accuracy", paired_interval(ours, theirs))


def _scorable(records: Sequence[Record]) -> list[tuple[str, Question]]:
    """Return (image, question) for each question with reference answers. Raises DataError if no question has them."""
    answered = [(record.key, question) for record in records for question in record.questions if question.answers]
    return present(answered, "questions with answers to score")


def _build(given: TaskOptions) -> Vqa:
    if given.answers is None:
        raise RecipeError("this model has no list of answers; fine-tune it: diptych finetune vqa")
    return Vqa(given.tokens, given.answers, given.max_words, given.answer_slot, given.answer_form)


def _start_from_words(task: Task, heads: nn.ModuleDict, start: Heads) -> None:
    """Initialise each one-token answer from that token's row of the head "word", if the start model has no answers."""
    assert isinstance(task, Vqa)
    if start.answers is None and "answer" in heads:
        head, word = heads["answer"], heads["word"]
        if isinstance(head, SlotAnswerHead) and isinstance(word, WordHead):
            pieces = [task.tokens.encode(name) for name in task.answers.names[1:]]
            head.begin_as(word, [None, *(ids[0] if len(ids) == 1 else None for ids in pieces)])


def _outside(task: Any, records: Iterable[Record]) -> list[tuple[str, str]]:
    """Return (key, first answer) of the answered questions that have no answer in the model's list."""
    return [(one.key, one.answers[0]) for one in answered_questions(records) if not task.answers.scores(one.answers)]


def _notes(task: Task, records: TrainingRecords) -> Iterator[str]:
    """Yield warnings about questions without answers, and about questions whose answers are not in the model's list."""
    assert isinstance(task, Vqa)
    words = list(records.words())
    questions, answered = [question for record in words for question in record.questions], answered_questions(words)
    if len(answered) < len(questions):
        yield f"{len(questions) - len(answered)} of {len(questions)} questions are left out: they have no answers"
    fate = "are left out" if task.form == "softmax" else "are trained with every answer as wrong"
    yield from outside_notes(_outside(task, words), len(questions), "questions", fate)
    yield from rule_notes(answered)


class VqaObjectives(SeenClasses):
    """Fine-tuning for visual question answering: one class per answer."""

    kind: Literal["vqa"] = "vqa"
    """Kind of objectives."""
    form: AnswerForm = "binary"
    """Loss: a sigmoid for each answer (binary), or a softmax over all answers."""
    masks_a_word: bool = False
    """Mask one word of each question in training (Unified VLP's code, vqa_mask_one)."""

    @property
    def answer_form(self) -> AnswerForm:
        return self.form

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        answer = AnswerQuestion(vocabulary, self.masks_a_word, form=self.form)
        return weighed((answer, 1.0), (SeenRegionClass(), self.seen_classes))


class AskRequest(interface.TaskRequest):
    question: Annotated[
        interface.Text, interface.Form("Question", "what colour is the dog?", argument="questions", each=True)
    ] = Field(description="Question about the image, such as 'what colour is the dog?'.")
    explain: bool = Field(default=False, description="Also return the regions, with their influence on the answer.")


class OtherAnswer(interface.Message):
    answer: str
    probability: float


class GivenAnswer(interface.TaskAnswer):
    question: str
    answer: str
    probability: float
    others: tuple[OtherAnswer, ...] = Field(description="The next likeliest answers.")
    sure: bool | None = Field(
        default=None,
        description="False: on validation questions, answers this improbable were more often wrong than right. "
        "None: not measured.",
    )
    shown: str | None = None
    explanation: interface.Explanation | None = None


def answer(model: interface.TaskModel, requests: Sequence[tuple[Record, AskRequest]]) -> list[interface.GroundedText]:
    """Answer each request's question about its record, in one batch. The next most probable answers are in `others`."""
    task = model.build()
    assert isinstance(task, Vqa)
    samples: list[Sample] = []
    for number, (record, request) in enumerate(requests):
        interface.require_text("a question", request.question, "what colour is the dog?")
        samples += task.queries(replace(record, questions=(Question(str(number), request.question, ()),)))
    limit = task.answers.sure_above
    with predicting(model.model, len(samples)):
        likeliest = task.likeliest(model.model, collate(samples).to(next(model.model.parameters()).device), LIKELIEST)
    return [
        interface.GroundedText(
            text=text,
            score=score,
            precision=model.precision(len(samples)),
            record=record,
            words=(text,),
            weigh=partial(_weigh, model, task, record, sample, text),
            others=tuple(others),
            sure=None if limit is None else score > limit,
            class_names=model.class_names,
        )
        for (record, _), sample, ((text, score), *others) in zip(requests, samples, likeliest, strict=True)
    ]


def _weigh(model: interface.TaskModel, task: Vqa, record: Record, query: Sample, answer: str) -> Float[Tensor, "1 R"]:
    assert record.regions is not None
    number = task.answers.names.index(answer)
    return weigh_answer(model.model, record.regions, query.text, number, task.log_probabilities)


def _message(prediction: interface.GroundedText, request: AskRequest, picture: str) -> GivenAnswer:
    return GivenAnswer(
        picture=picture,
        precision=prediction.precision,
        question=request.question,
        answer=prediction.text,
        probability=prediction.score,
        others=tuple(OtherAnswer(answer=text, probability=score) for text, score in prediction.others),
        sure=prediction.sure,
        explanation=prediction.explain() if request.explain else None,
    )


def _shown(message: GivenAnswer) -> str:
    return f"{message.answer} (not sure)" if message.sure is False else message.answer


def _view(_: AskRequest, message: GivenAnswer) -> interface.PageView:
    rows = ((message.answer, message.probability), *((other.answer, other.probability) for other in message.others))
    return interface.PageView(
        summary=f"{message.question} {_shown(message)}",
        notes=(UNSURE,) if message.sure is False else (),
        words=message.answer,
        explanation=message.explanation,
        tables=(interface.ShareTable(title="The likeliest answers", rows=rows),),
    )


def _answer_limit(task: Task) -> str:
    assert isinstance(task, Vqa)
    return f"It always gives one of {len(task.answers.names):,} answers, even if none of them is right."


VQA = TaskSpec(
    name="vqa",
    title="Questions",
    learns="answer",
    field="questions",
    head="answer",
    build=_build,
    training=TaskTraining(
        watched="accuracy",
        objectives=(VqaObjectives,),
        small=Small(VqaObjectives(form="softmax")),
        answers=Answers.of,
        begin=_start_from_words,
        notes=_notes,
        calibrate=calibrate,
    ),
    scoring=TaskScoring(
        noun="answers",
        key="answer",
        shown=("accuracy", "accuracy yes/no", "accuracy number", "accuracy other"),
        score=score_vqa,
        baselines=lambda records, training: vqa_baselines(records, answered_questions(training)),
        gain=vqa_gain,
        outside=_outside,
    ),
    interface=interface.TaskInterface(
        verb="ask",
        help=TASK_VERBS["ask"].help,
        words=interface.InterfaceWords(
            does="answers questions about an image",
            example='print(model.ask("photo.jpg", "what colour is the dog?"))',
            pipeline="visual-question-answering",
            limit=_answer_limit,
        ),
        request=AskRequest,
        response=GivenAnswer,
        answer=answer,
        message=_message,
        lines=lambda message, alone: [_shown(message) if alone else f"{message.question} {_shown(message)}"],
        view=_view,
        programs="answers",
    ),
)
