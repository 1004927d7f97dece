"""`TaskSpec`: how a task is trained, scored and used. `diptych.tasks.TASKS` has one for each task."""

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
from diptych.runtime.errors import DataError, ServingError
from diptych.tasks.answers import Answers
from diptych.tasks.calibration import Calibration
from diptych.tasks.interface import TaskInterface
from diptych.tasks.scores import Baselines, Score, Scores

LIKELIHOOD = "likelihood"  # likelihood of the objectives' targets, which validation uses if the task predicts nothing
SAMPLED = 1000  # records that notes are counted over; more would delay a large run
Prediction = Mapping[str, Any]
Predict = Callable[[Task], Sequence[Prediction]]  # a model's predictions for certain records
Predicted = Mapping[str, Any]  # by the key of the query


@dataclass(frozen=True)
class TaskOptions:
    """Settings of a recipe, and contents of a model folder, that a task is built from."""

    tokens: Tokens
    answers: Answers | None = None  # answers that the model can predict
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    max_words: int = 20
    split_words: bool = False
    max_regions: int | None = None
    answer_slot: bool = False  # a [MASK] follows the question, and the answer is predicted there
    answer_form: AnswerForm = "binary"
    reads_pairs: bool = False  # retrieval: one model reads image and text together, unlike two towers


@dataclass(frozen=True)
class Heads:
    """What new heads are initialised from: the model that a run starts from."""

    heads: nn.ModuleDict
    answers: Answers | None


@dataclass(frozen=True)
class Small:
    """The task's own settings in the recipes SYSTEM/small/TASK. The rest is the system's small recipe of pre-training.

    Every system whose model provides what the objectives need has such a recipe.
    """

    objectives: Objectives
    batch: int = 64
    max_words: int = 20
    about: str = ""  # what a user should know about the recipe


@dataclass(frozen=True)
class TrainingRecords:
    """The training records of a run, for `TaskTraining.notes`."""

    store: Store
    numbers: Sequence[int]
    max_regions: int

    def words(self) -> Iterator[Record]:
        """Yield all records, without regions."""
        return map(self.store.words, self.numbers)

    def sampled(self) -> list[Record]:
        """Return the first SAMPLED records, with the regions that the model reads."""
        return [self.store.record(number).best_regions(self.max_regions) for number in self.numbers[:SAMPLED]]

    @property
    def scope(self) -> str:
        """`sample_scope` of a count over `sampled`."""
        return sample_scope(len(self.numbers))


@runtime_checkable
class LeavesOut(Protocol):
    """A task that skips captions with only out-of-vocabulary words."""

    unknown: dict[str, str]  # by key


@dataclass(frozen=True)
class TaskTraining:
    """How a task is trained: the score of validation, and what a run prepares."""

    watched: str  # score by which validation chooses weights; higher is better
    objectives: tuple[type[Objectives], ...] = ()  # settings that train it, besides those of the systems
    small: Small | None = None  # small recipe, shared by the systems that can learn the task
    # Collect the answers of training records, given a minimum count and a maximum number of answers.
    answers: Callable[[Iterable[Record], int, int | None], Answers] | None = None
    begin: Callable[[Task, nn.ModuleDict, Heads], None] | None = None  # initialise new heads
    validation: Callable[[Task, list[Record]], tuple[Task, list[Record]]] | None = (
        None  # task and records of validation
    )
    notes: Callable[[Task, TrainingRecords], Iterator[str]] | None = None  # warnings before the run
    # Fit the temperature of answers, given what predicts and the records of validation.
    calibrate: Callable[[Task, Predict, Sequence[Record]], Calibration | None] | None = None
    separators: int = 1  # number of [SEP]s in the text
    cuts_texts: bool = True  # each text is cut separately, at data.max_words


@dataclass(frozen=True)
class TaskScoring:
    """How predictions are scored, compared and shown in a report."""

    noun: str  # what is scored, in the plural
    key: str  # field of a prediction that holds its result
    shown: tuple[str, ...]  # scores that a report draws, the main one first
    score: Callable[[Predicted, Sequence[Record], Baselines | None], Scores]  # with intervals and baselines
    # Baselines and ceilings of records, given training records.
    baselines: Callable[[Sequence[Record], Sequence[Record]], Baselines] | None = None
    baseline_regions: int = 0  # training records read with regions, for baselines that use regions
    gain: Callable[[Predicted, Predicted, Sequence[Record]], Score] | None = None  # second minus first
    # Further scores by name, times 100: METEOR, SPICE.
    extra_scores: Callable[[Predicted, Sequence[Record], Sequence[str]], list[Score]] | None = None
    collect: Callable[[Iterable[Prediction]], Predicted] | None = None  # default: `key` of each prediction
    gallery: bool = False  # each query ranks all images (--queries, --shortlist, --pairs)
    # The queries and predictions as questions and answers, for a report page.
    questions: Callable[[Record], Iterable[Question]] | None = None
    answered: Callable[[Predicted], dict[str, str]] | None = None


@dataclass(frozen=True)
class TaskSpec:
    """One task. Fields with a default are for what only some tasks have."""

    name: str  # diptych finetune NAME
    title: str  # heading in a report
    learns: str  # a verb: "a model that learns to ..."
    field: str  # of `Record.words`: what the task learns from
    head: str  # head of the model that predicts
    build: Callable[[TaskOptions], Task]
    training: TaskTraining
    scoring: TaskScoring
    interface: TaskInterface | None = None  # None: the task is trained and scored only
    learnt: Callable[[Any], bool] | None = None  # True if a model has learnt the task; default: if it has the head
    also: tuple[str, ...] = ()  # fields that it learns from in records without `field`

    @property
    def pretrains(self) -> bool:
        """True if validation measures the likelihood of the objectives' targets, as the task predicts nothing."""
        return self.training.watched == LIKELIHOOD

    @property
    def required_interface(self) -> TaskInterface:
        """The task's interface. Raises AssertionError if it has none."""
        assert self.interface is not None, f"the task {self.name} has no interface"
        return self.interface

    def has_learnt(self, model: Any) -> bool:
        """Return True if a model has learnt the task."""
        return self.head in model.heads if self.learnt is None else self.learnt(model)

    def may_read(self, answers: Answers | None) -> bool:
        """Return False if the task predicts labels, and the model's list of labels belongs to another task."""
        return self.training.answers is None or answers is None or answers.task == self.name

    def offered_by(self, model: Any, trained_for: str | None) -> bool:
        """Return True if a model offers the task. `trained_for`: task of its recipe; None: an imported checkpoint."""
        if self.required_interface.offered is not None:
            return self.required_interface.offered(model, trained_for)
        return trained_for is not None and self.has_learnt(model)

    def check_offered(self, model: Any, trained_for: str | None, where: object) -> None:
        """Raise ServingError if the task's interface does not offer a model that was trained for another task."""
        if self.required_interface.offered is not None and not self.offered_by(model, trained_for):
            trained = "no task" if trained_for is None else trained_for
            raise ServingError(
                f"the model {where} was trained for {trained} and cannot {self.required_interface.verb}; pass a model "
                f"that was trained for {self.name}: diptych finetune {self.name}"
            )

    def by_key(self, predictions: Iterable[Prediction]) -> Predicted:
        """Return the predictions' results by the keys of their queries. Raises DataError for a repeated key."""
        if self.scoring.collect is not None:
            return self.scoring.collect(predictions)
        made: dict[str, Any] = {}
        for one in predictions:
            if one["key"] in made:
                shared = f"two {self.scoring.noun} of the split have this id, so one result would count for both"
                raise DataError(f"{shared}; give each its own (`question_id`) and extract again", key=one["key"])
            made[one["key"]] = one[self.scoring.key]
        return made

    def texts(self, record: Record) -> list[str]:
        """Return the texts of a record that the task reads."""
        return [entry if isinstance(entry, str) else entry.text for entry in self._entries(record)]

    def learns_from(self, record: Record) -> bool:
        """Return True if a record has what the task learns from; questions count if people answered them."""
        return any(one.answers if isinstance(one, Question) else one for one in self._entries(record))

    def _entries(self, record: Record) -> Sequence[Any]:
        words = record.words()
        return next((words[name] for name in (self.field, *self.also) if words.get(name)), ())


def sample_scope(records: int) -> str:
    """Return a suffix for a count: empty, or a note that only the first SAMPLED records were counted."""
    return "" if records <= SAMPLED else f" (of the first {SAMPLED:,} pictures)"
