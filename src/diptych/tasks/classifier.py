"""Classification of pairs of an image and a text. `classifier` makes a `TaskSpec`; the data define the labels.

The texts are in `Record.more` under the task's name. The only answer of a text is its label.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from diptych.core import Batch, Record, TaskItem, Vocabulary
from diptych.core.labels import alike
from diptych.metrics.auroc import accuracy, class_auroc
from diptych.metrics.bootstrap import resampled_interval
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.errors import DataError
from diptych.tasks import interface
from diptych.tasks.answers import Answers, outside_notes
from diptych.tasks.baselines import text_probabilities
from diptych.tasks.scores import Baselines, Score, Scores, present, score_of
from diptych.tasks.spec import Small, TaskOptions, TaskScoring, TaskSpec, TaskTraining, TrainingRecords
from diptych.tasks.verdicts import Judged, Verdicts, VerdictTask

SHOWN = 5  # number of labels in an answer, the most probable first


@dataclass(frozen=True)
class Metric:
    """A score of classified items, such as AUROC, computed by `of`."""

    name: str
    # Computes the score from (probabilities (items, classes), right class of each item): 0 to 1, or NaN if undefined.
    of: Callable[[NDArray[np.float64], NDArray[np.int64]], float]


ACCURACY, AUROC = Metric("accuracy", accuracy), Metric("AUROC", class_auroc)


class LabelObjectives(Objectives):
    """Fine-tuning of a classifier whose labels are those of the training data."""

    kind: Literal["labels"] = "labels"
    """Kind of objectives."""
    head: str = "classify"
    """Name of the head that classifies, which is the task's name."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement(self.head))


@dataclass(frozen=True)
class Labels(Verdicts):
    """Scoring and baselines of a classifier. A prediction holds the probability of each label."""

    metrics: tuple[Metric, ...] = (ACCURACY, AUROC)

    @property
    def scoring(self) -> TaskScoring:
        shown = tuple(metric.name for metric in self.metrics)
        return replace(super().scoring, shown=shown, outside=self.outside)

    def build(self, given: TaskOptions) -> VerdictTask:
        if given.answers is None:
            raise DataError(f"this model has no labels; fine-tune it: diptych finetune {self.task}")
        return LabelTask(self, given.tokens, given.max_words, given.answers.names)

    def outside(self, task: VerdictTask, records: Iterable[Record]) -> list[tuple[str, str]]:
        """Return (key, label) of all items whose label the model cannot predict."""
        return [(one.key, one.label) for _, one in self.known(records) if one.label not in task.classes]

    def items(
        self, predicted: Mapping[str, Any], records: Iterable[Record]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
        """Return probabilities (items, classes), right classes and image keys of all items with a known label."""
        known = present(self.known(records), f"{self.noun} with labels to score")
        given = [predicted[one.key] for _, one in known]
        labels = sorted({one.label for _, one in known}.union(*given))
        chances = np.array([[one.get(label, 0.0) for label in labels] for one in given], dtype=np.float64)
        right = np.array([labels.index(one.label) for _, one in known], dtype=np.int64)
        return chances, right, [picture for picture, _ in known]

    def values(self, predicted: Mapping[str, Any], records: Sequence[Record]) -> dict[str, float]:
        """Return each score from 0 to 1.

        Undefined scores are left out, such as AUROC if all items have the same label.
        """
        chances, right, _ = self.items(predicted, records)
        values = {metric.name: metric.of(chances, right) for metric in self.metrics}
        return {name: value for name, value in values.items() if not np.isnan(value)}

    def score(
        self, predicted: Mapping[str, Any], records: Sequence[Record], baselines: Baselines | None = None
    ) -> Scores:
        baselines = baselines or Baselines()
        chances, right, pictures = self.items(predicted, records)
        there = self.values(predicted, records)
        scores = tuple(
            baselines.score(metric.name, resampled_interval(partial(_of_rows, metric, chances, right), pictures))
            for metric in self.metrics
            if metric.name in there
        )
        drawn = f"intervals: 95%, 1,000 bootstrap resamples of images, each with all its {self.noun}"
        left = [
            f"{one.name} is left out: it needs at least two labels" for one in self.metrics if one.name not in there
        ]
        rows = self.rows(predicted, records, baselines)
        notes = (drawn, *left, *baselines.notes)
        return Scores(self.task, scores, len(set(pictures)), len(right), notes=notes, rows=rows)

    def gain(self, first: Mapping[str, Any], second: Mapping[str, Any], records: Sequence[Record]) -> Score:
        """Return the difference in the first metric, second minus first, with a paired bootstrap interval."""
        (theirs, right, pictures), (ours, same, _) = (self.items(one, records) for one in (first, second))
        metric = self.metrics[0]

        def difference(rows: NDArray[np.int64]) -> float:
            return _of_rows(metric, ours, same, rows) - _of_rows(metric, theirs, right, rows)

        return score_of(metric.name, resampled_interval(difference, pictures))

    def baselines(self, records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
        """Return the blind baseline: for each score the better of a rule on first words and a bigram classifier."""
        made = super().baselines(records, training)
        if made.predicted is None:
            return made
        scored, learnt = ([one for _, one in self.known(some)] for some in (records, training))
        codes = self.codes((*scored, *learnt))
        known, queries = ([self.as_question(one, codes[one.label]) for one in some] for some in (learnt, scored))
        chances = [*text_probabilities(known, queries).values()]
        given = {
            one.key: {label: chance.get(code, 0.0) for label, code in codes.items()}
            for one, chance in zip(scored, chances, strict=True)
        }
        by_rule = {key: {label: 1.0} for key, label in made.predicted.items()}
        both = self.values(given, records), self.values(by_rule, records)
        blind = {name: max(one[name] for one in both if name in one) for name in {**both[0], **both[1]}}
        main = self.metrics[0].name
        better = given if both[0].get(main, 0.0) >= both[1].get(main, 0.0) else by_rule
        return Baselines(blind, {}, made.notes, better)

    def given(self, prediction: Any) -> str:
        return str(max(prediction, key=prediction.__getitem__))


@dataclass(frozen=True)
class LabelTask(VerdictTask):
    """Classify each pair of a text and its image into the labels in `names`."""

    names: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[Any, ...]:
        return self.names

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the probability of each label."""
        rows = zip(batch.keys, self.probabilities(model, batch).tolist(), strict=True)
        return [{"key": key, self.verdicts.key: dict(zip(self.names, row, strict=True))} for key, row in rows]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return each score, times 100."""
        assert isinstance(self.verdicts, Labels)
        predicted = {prediction["key"]: prediction[self.verdicts.key] for prediction in predictions}
        return {name: 100 * value for name, value in self.verdicts.values(predicted, records).items()}


def _of_rows(metric: Metric, chances: NDArray[np.float64], right: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    return metric.of(chances[rows], right[rows])


def _judged(task: str, record: Record) -> Iterator[Judged]:
    for one in record.more.get(task, ()):
        yield Judged(one.key, one.text, one.answers[0].strip() if one.answers else None)


def labels_of(task: str, records: Iterable[Record], at_least: int = 1, most: int | None = None) -> Answers:
    """Collect the labels that at least `at_least` items have, in sorted order.

    If there are more than `most` labels, keep the most frequent.
    """
    counts = _counts(task, records)
    frequent = sorted(sorted(label for label, n in counts.items() if n >= at_least), key=lambda one: -counts[one])
    if len(names := sorted(frequent[:most])) < 2:
        raise DataError(
            f"a classifier needs at least two labels, but the training records have {len(names)} for {task}"
            f"{''.join(f' ({name})' for name in names)}; pass texts with labels, such as "
            f'{{"image": "a.jpg", "more": {{"{task}": [{{"text": "...", "answers": ["LABEL"]}}]}}}}'
        )
    return Answers(tuple(names), task=task)


def more_labels(task: str, records: Iterable[Record], kept: Answers) -> Answers:
    """Return the start model's list `kept`, and after it, in sorted order, the labels that only `records` have."""
    return replace(kept, names=(*kept.names, *sorted(_counts(task, records).keys() - set(kept.names))))


def _counts(task: str, records: Iterable[Record]) -> Counter[str]:
    return Counter(one.label for record in records for one in _judged(task, record) if one.label)


def _notes(labels: Labels, task: Any, records: TrainingRecords) -> Iterator[str]:
    words = list(records.words())
    yield from outside_notes(labels.outside(task, words), len(labels.known(words)), labels.noun, "are left out")
    for group in alike(task.names):
        same = ", ".join(map(ascii, group))
        yield f"labels {same} differ only in case or in the form of accents; they are trained as different classes"


class ClassifyRequest(interface.TaskRequest):
    text: Annotated[interface.Text, interface.Form("Text", "what a day", argument="texts", each=True)] = Field(
        description="Text that belongs to the picture, such as 'what a day'."
    )


class Classified(interface.TaskAnswer):
    text: str
    label: str = Field(description="The likeliest label of the training data.")
    probability: float = Field(description="Probability of the label.")
    labels: interface.ShareTable = Field(description="The likeliest labels with their probabilities.")


def _classify(
    task: str, model: interface.TaskModel, requests: Sequence[tuple[Record, ClassifyRequest]]
) -> list[Classified]:
    records = []
    for number, (record, request) in enumerate(requests):
        interface.require_text("a text", request.text, "what a day")
        records.append(replace(record, more={**record.more, task: (TaskItem(str(number), request.text),)}))
    answers = []
    for (record, request), one in zip(requests, model.ask(records), strict=True):
        ranked = sorted(one["probabilities"].items(), key=lambda pair: -pair[1])
        answers.append(
            Classified(
                picture=record.key,
                precision=model.precision(len(requests)),
                text=request.text,
                label=ranked[0][0],
                probability=ranked[0][1],
                labels=interface.ShareTable(title="The likeliest labels", rows=tuple(ranked[:SHOWN])),
            )
        )
    return answers


def _view(request: ClassifyRequest, message: Classified) -> interface.PageView:
    verdict = f"{message.label}, {interface.percent(message.probability)} sure"
    return interface.PageView(summary=f"{request.text}: {message.label}", verdicts=(verdict,), tables=(message.labels,))


def classifier(
    name: str, *, title: str, learns: str, verb: str, help: str, does: str, noun: str = "texts",
    metrics: tuple[Metric, ...] = (ACCURACY, AUROC), batch: int = 64, max_words: int = 24,
) -> TaskSpec:  # fmt: skip
    """Make a task that classifies pairs of an image and a text. The training data define the labels.

    - name: name of the task, of its model head and of its key in `Record.more`.
    - title: heading in a report. learns: completes "a model that learns to ...". noun: what is scored, in the plural.
    - verb, help: name and help text of the command and web page. does: completes "It ..." on a model card.
    - metrics: the scores to compute. Validation chooses the weights by the first score.
    """
    labels = Labels(name, noun, "probabilities", {}, partial(_judged, name), metrics)
    return TaskSpec(
        name=name,
        title=title,
        learns=learns,
        field=name,
        head=name,
        build=labels.build,
        training=TaskTraining(
            watched=metrics[0].name,
            objectives=(LabelObjectives,),
            small=Small(LabelObjectives(head=name), batch, max_words),
            answers=partial(labels_of, name),
            more_answers=partial(more_labels, name),
            notes=partial(_notes, labels),
        ),
        scoring=labels.scoring,
        interface=interface.TaskInterface(
            verb=verb,
            help=help,
            words=interface.InterfaceWords(
                does=does,
                example=f'print(model.predict("{name}", "photo.jpg", text="what a day").label)',
            ),
            request=ClassifyRequest,
            response=Classified,
            answer=partial(_classify, name),
            lines=lambda answer, alone: [answer.label if alone else f"{answer.label}: {answer.text}"],
            view=_view,
        ),
    )
