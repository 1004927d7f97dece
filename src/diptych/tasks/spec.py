"""`TaskSpec` defines how a task is trained, scored and used. `diptych.tasks.TASKS` lists all of them."""

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
from diptych.runtime.errors import DataError, UnsupportedError
from diptych.tasks.answers import Answers
from diptych.tasks.calibration import Calibration
from diptych.tasks.interface import TaskInterface
from diptych.tasks.scores import Baselines, Score, Scores

LIKELIHOOD = "likelihood"  # name of the validation score of pre-training, the likelihood of the targets
SAMPLED = 1000  # warnings count at most the first 1,000 records, so that large runs start quickly
Prediction = Mapping[str, Any]
Predict = Callable[[Task], Sequence[Prediction]]  # task -> predictions of a model for a fixed set of records
Predicted = Mapping[str, Any]  # {key of a query: result}
Gain = Callable[
    [Predicted, Predicted, Sequence[Record]], Score
]  # score of the second predictions minus that of the first


@dataclass(frozen=True)
class TaskOptions:
    """What a task is built from: settings of the recipe, and the tokeniser and answers of the model folder."""

    tokens: Tokens
    answers: Answers | None = None  # the answers that the model can predict
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    max_words: int = 20
    split_words: bool = False
    max_regions: int | None = None
    answer_slot: bool = False  # True: the answer is predicted at a [MASK] after the question
    answer_form: AnswerForm = "binary"
    reads_pairs: bool = False  # for retrieval. True: the model reads image and text together; False: it has two towers


@dataclass(frozen=True)
class Heads:
    """The heads and answers of the model that fine-tuning starts from. New heads may be initialised from them."""

    heads: nn.ModuleDict
    answers: Answers | None


@dataclass(frozen=True)
class Small:
    """The task's settings in the recipes SYSTEM/small/TASK.

    All other settings come from the system's recipe SYSTEM/small/pretrain.

    Every system whose model supports the objectives has this recipe.
    """

    objectives: Objectives
    batch: int = 64
    max_words: int = 20
    about: str = ""  # a remark on the recipe, for its users


@dataclass(frozen=True)
class TrainingRecords:
    """The training records of a run, as `TaskTraining.notes` gets them."""

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
        """A suffix for counts over `sampled()`; see `sample_scope`."""
        return sample_scope(len(self.numbers))


@runtime_checkable
class LeavesOut(Protocol):
    """A task that leaves out captions whose words are all out of vocabulary."""

    unknown: dict[str, str]  # {record's key: caption that was left out}


@dataclass(frozen=True)
class TaskTraining:
    """How a task is trained and validated."""

    watched: str  # name of the validation score that chooses the best weights; a higher score is better
    objectives: tuple[type[Objectives], ...] = ()  # the task's own kinds of objectives, in addition to those of systems
    small: Small | None = None  # settings of the task in the recipes SYSTEM/small/TASK
    # (training records, minimum count, maximum number of answers) -> list of the answers that the model can predict
    answers: Callable[[Iterable[Record], int, int | None], Answers] | None = None
    # (training records, the start model's list) -> list of the model; None: the start model's list is kept as it is.
    more_answers: Callable[[Iterable[Record], Answers], Answers] | None = None
    # Initialises the heads that are added to a model for the task.
    begin: Callable[[Task, nn.ModuleDict, Heads], None] | None = None
    validation: Callable[[Task, list[Record]], tuple[Task, list[Record]]] | None = (
        None  # (task, records) -> (task, records) to validate with
    )
    # Yields warnings about the training records before a run begins.
    notes: Callable[[Task, TrainingRecords], Iterator[str]] | None = None
    # Fits the temperature of the answers to predictions for the validation records.
    calibrate: Callable[[Task, Predict, Sequence[Record]], Calibration | None] | None = None
    separators: int = 1  # number of [SEP] tokens that a text contains
    cuts_texts: bool = True  # True: each text is cut at data.max_words tokens


@dataclass(frozen=True)
class TaskScoring:
    """How predictions of a task are scored, compared and reported."""

    noun: str  # name of the scored items, in the plural, such as "questions"
    key: str  # the field of a prediction that is scored, such as "answer"
    shown: tuple[str, ...]  # names of the scores in the chart of a report, the main one first
    # Arguments: predictions, records, baselines.
    score: Callable[[Predicted, Sequence[Record], Baselines | None], Scores]
    # (records to score, training records) -> baselines and ceilings.
    baselines: Callable[[Sequence[Record], Sequence[Record]], Baselines] | None = None
    baseline_regions: int = 0  # number of training records whose regions a baseline needs
    gain: Gain | None = None
    # Computes the optional scores with these names, METEOR or SPICE, times 100.
    extra_scores: Callable[[Predicted, Sequence[Record], Sequence[str]], list[Score]] | None = None
    # Groups predictions by query; default: {key of the query: the field `key`}.
    collect: Callable[[Iterable[Prediction]], Predicted] | None = None
    gallery: bool = False  # True: queries rank a gallery, so --queries, --shortlist and --pairs apply
    # (task, records) -> (key, answer) of each item whose answer is not in the model's list, so it can never be right.
    outside: Callable[[Any, Iterable[Record]], list[tuple[str, str]]] | None = None


@dataclass(frozen=True)
class TaskSpec:
    """The definition of a task. Fields with a default are needed by only some tasks."""

    name: str  # name of the task, as in `diptych finetune NAME`
    title: str  # heading of the task in a report
    learns: str  # completes the sentence "a model that learns to ..."
    field: str  # key of `Record.words()` with its annotations, such as "captions"
    head: str  # name of the model's head that makes the predictions
    build: Callable[[TaskOptions], Task]
    training: TaskTraining
    scoring: TaskScoring
    interface: TaskInterface | None = None  # None: the task can be trained and scored, but has no command
    learnt: Callable[[Any], bool] | None = None  # model -> True if it has learnt the task; default: has `head`
    also: tuple[str, ...] = ()  # keys of `Record.words()` that are used for records without `field`

    @property
    def pretrains(self) -> bool:
        """True for pre-training, whose validation score is the likelihood of the objectives' targets."""
        return self.training.watched == LIKELIHOOD

    @property
    def required_interface(self) -> TaskInterface:
        """The task's interface. Raises AssertionError if the task has no interface."""
        assert self.interface is not None, f"the task {self.name} has no interface"
        return self.interface

    def has_learnt(self, model: Any) -> bool:
        """Return True if `model` has learnt the task."""
        return self.head in model.heads if self.learnt is None else self.learnt(model)

    def may_read(self, answers: Answers | None) -> bool:
        """Return False if `answers` (a model's list of labels) belongs to another task than this one."""
        return self.training.answers is None or answers is None or answers.task == self.name

    def offered_by(self, model: Any, trained_for: str | None) -> bool:
        """Return True if `model` offers the task's command.

        `trained_for`: the task of the model's recipe, None for an imported model.
        """
        if self.required_interface.offered is not None:
            return self.required_interface.offered(model, trained_for)
        return trained_for is not None and self.has_learnt(model)

    def check_offered(self, model: Any, trained_for: str | None, where: object) -> None:
        """Raise UnsupportedError if `model`, whose folder is `where`, was trained for another task."""
        if self.required_interface.offered is not None and not self.offered_by(model, trained_for):
            trained = "no task" if trained_for is None else trained_for
            raise UnsupportedError(
                f"the model {where} was trained for {trained} and cannot {self.required_interface.verb}; pass a model "
                f"that was trained for {self.name}: diptych finetune {self.name} --data DATA --model MODEL --out RUN"
            )

    def by_key(self, predictions: Iterable[Prediction]) -> Predicted:
        """Return {key of the query: result} of predictions. Raises DataError for a duplicate key."""
        if self.scoring.collect is not None:
            return self.scoring.collect(predictions)
        made: dict[str, Any] = {}
        for one in predictions:
            if one["key"] in made:
                shared = f"two {self.scoring.noun} of the split have this id, so one result would count for both"
                raise DataError(f"{shared}; give each its own id (`question_id`) and extract again", key=one["key"])
            made[one["key"]] = one[self.scoring.key]
        return made

    def texts(self, record: Record) -> list[str]:
        """Return the texts that the task reads from a record, such as its questions."""
        return [entry if isinstance(entry, str) else entry.text for entry in self._entries(record)]

    def learns_from(self, record: Record) -> bool:
        """Return True if a record has annotations that the task learns from. Unanswered questions do not count."""
        return any(one.answers if isinstance(one, Question) else one for one in self._entries(record))

    def _entries(self, record: Record) -> Sequence[Any]:
        words = record.words()
        return next((words[name] for name in (self.field, *self.also) if words.get(name)), ())


def sample_scope(records: int) -> str:
    """Return a suffix for a count: "", or " (of the first 1,000 images)" if there are more than SAMPLED records."""
    return "" if records <= SAMPLED else f" (of the first {SAMPLED:,} images)"
