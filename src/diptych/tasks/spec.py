"""What a task is, said once: each has one `TaskSpec`, and `diptych.tasks.TASKS` lists them all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import nn

from diptych.core import Question, Record, Task
from diptych.core.shares import AnswerForm
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.models.decoding import DecodingOptions
from diptych.objectives.settings import Objectives
from diptych.tasks.answers import Answers
from diptych.tasks.interface import TaskInterface
from diptych.tasks.scores import Baselines, Score, Scores

LIKELIHOOD = "likelihood"  # of what the objectives ask: what validation watches where nothing is predicted
SAMPLED = 1000  # records that are read to count; more would keep a large run waiting
Prediction = Mapping[str, Any]
Predicted = Mapping[str, Any]  # what was predicted, by the key of what was asked


@dataclass(frozen=True)
class TaskOptions:
    """All that a task is made of: what a recipe says, and what a model folder holds."""

    tokens: Tokens
    answers: Answers | None = None  # that the model can give
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    max_words: int = 20
    max_regions: int | None = None
    answer_slot: bool = False  # a [MASK] follows the question, and the answer is read there
    answer_form: AnswerForm = "binary"
    reads_pairs: bool = False  # retrieval: picture and text are read together, and not apart by two towers


@dataclass(frozen=True)
class Start:
    """The model that a run goes on with, as far as new heads begin from it."""

    heads: nn.ModuleDict
    answers: Answers | None


@dataclass(frozen=True)
class Small:
    """What the recipes SYSTEM/small/TASK have of the task's own; the rest is each system's small recipe of
    pre-training. Systems whose model provides what the objectives need have one."""

    objectives: Objectives
    batch: int = 64
    max_words: int = 20
    about: str = ""  # what a user should know of it: "pairs are told apart"


@dataclass(frozen=True)
class TrainingRecords:
    """The records that a run learns from, read as far as `TaskSpec.notes` wants."""

    store: Store
    numbers: Sequence[int]
    max_regions: int

    def words(self) -> Iterator[Record]:
        """All of them, without regions."""
        return map(self.store.words, self.numbers)

    def seen(self) -> list[Record]:
        """The first SAMPLED, with the regions that the model reads."""
        return [self.store.record(number).best_regions(self.max_regions) for number in self.numbers[:SAMPLED]]

    @property
    def first(self) -> str:
        """What a count over `seen` has to say of those that it left out."""
        return of_the_first(len(self.numbers))


@runtime_checkable
class LeavesOut(Protocol):
    """A task that leaves captions out, as the vocabulary knows none of their words."""

    unknown: dict[str, str]  # by key


@dataclass(frozen=True)
class TaskTraining:
    """How a task is learnt: what validation watches, and what a run prepares."""

    watched: str  # the score that validation wants to rise
    objectives: tuple[type[Objectives], ...] = ()  # kinds of settings that teach it, besides those of the systems
    small: Small | None = None  # recipe for small worlds that all systems share which can learn it
    # The list of answers that training records give: at least so often, and so many at most.
    answers: Callable[[Iterable[Record], int, int | None], Answers] | None = None
    begin: Callable[[Task, nn.ModuleDict, Start], None] | None = None  # new heads begin as something that is known
    validation: Callable[[Task, list[Record]], tuple[Task, list[Record]]] | None = None  # how it asks, and of what
    notes: Callable[[Task, TrainingRecords], Iterator[str]] | None = None  # what a user should know before the run
    separators: int = 1  # [SEP]s among the words
    cuts_texts: bool = True  # at data.max_words, each by itself


@dataclass(frozen=True)
class TaskScoring:
    """How predictions are scored, compared and shown in a report."""

    noun: str  # what is scored, in the plural
    key: str  # of a prediction: what was predicted, next to its "key"
    shown: tuple[str, ...]  # the scores that a report draws, the main one first
    score: Callable[[Predicted, Sequence[Record], Baselines | None], Scores]  # with intervals and baselines
    # What scores of records are compared with, as far as words of training records teach it.
    baselines: Callable[[Sequence[Record], Sequence[Record]], Baselines] | None = None
    baseline_regions: int = 0  # N training records are read with regions, for baselines that use them
    gain: Callable[[Predicted, Predicted, Sequence[Record]], Score] | None = None  # of the second over the first
    # METEOR, SPICE: further scores by name, times 100, of what was predicted.
    extra_scores: Callable[[Predicted, Sequence[Record], Sequence[str]], list[Score]] | None = None
    collect: Callable[[Iterable[Prediction]], Predicted] | None = None  # where it is not one `key` a prediction
    gallery: bool = False  # a query is asked of all pictures at once (--queries, --shortlist, --pairs)
    # How a page shows predictions as answers to questions: the questions in place of what was asked, the answers.
    questions: Callable[[Record], Iterable[Question]] | None = None
    answered: Callable[[Predicted], dict[str, str]] | None = None


@dataclass(frozen=True)
class TaskSpec:
    """One task. What has no default every task has to give; the rest is for what only some have."""

    name: str  # diptych finetune NAME
    title: str  # heading of its part of a report
    learns: str  # a verb: "a model that learns to ..."
    field: str  # of `Record.words`: what there is to learn from
    head: str  # of the model, by which it predicts
    build: Callable[[TaskOptions], Task]
    training: TaskTraining
    scoring: TaskScoring
    interface: TaskInterface | None = None  # None: the task is trained and scored only
    learnt: Callable[[Any], bool] | None = None  # whether a model can predict; by default: whether it has the head

    @property
    def pretrains(self) -> bool:
        """Whether it is judged by the likelihood of what its objectives ask, and has no predictions of its own."""
        return self.training.watched == LIKELIHOOD

    @property
    def required_interface(self) -> TaskInterface:
        """The interface of a task that has one."""
        assert self.interface is not None, f"the task {self.name} has no interface"
        return self.interface

    def has_learnt(self, model: Any) -> bool:
        """Whether a model has learnt the task."""
        return self.head in model.heads if self.learnt is None else self.learnt(model)

    def offered_by(self, model: Any, trained_for: str | None) -> bool:
        """Whether a model can be asked; `trained_for`: the task of its recipe, None of an imported one."""
        if self.required_interface.offered is not None:
            return self.required_interface.offered(model, trained_for)
        return trained_for is not None and self.has_learnt(model)

    def by_key(self, predictions: Iterable[Prediction]) -> Predicted:
        """What was predicted, by the key of what was asked."""
        if self.scoring.collect is not None:
            return self.scoring.collect(predictions)
        return {prediction["key"]: prediction[self.scoring.key] for prediction in predictions}

    def texts(self, record: Record) -> list[str]:
        """The words of a record that the task reads."""
        return [entry if isinstance(entry, str) else entry.text for entry in record.words().get(self.field, ())]


def of_the_first(records: int) -> str:
    """What a count over the first SAMPLED of so many records has to say of the others."""
    return "" if records <= SAMPLED else f" (of the first {SAMPLED:,} pictures)"
