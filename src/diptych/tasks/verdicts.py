"""Tasks that classify sentences about an image, such as true or false, entailed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.core import Batch, Question, Record, Sample
from diptych.data.store.tokens import Tokens
from diptych.metrics.bootstrap import paired_interval, rows_by_picture
from diptych.runtime.errors import DataError
from diptych.tasks.baselines import BlindAnswers, learnt_answers, stronger
from diptych.tasks.run import encode, finite
from diptych.tasks.scores import Baselines, Score, Scores, score_of, share_scores
from diptych.tasks.spec import TaskOptions, TaskScoring


@dataclass(frozen=True)
class Judged:
    """A sentence about an image, and its class; None: unknown."""

    key: str
    text: str
    label: Any


@dataclass(frozen=True)
class Verdicts:
    """The settings, scoring and baselines of a sentence classification task, for its `TaskSpec`."""

    task: str  # name of the task and of its head
    noun: str  # what is classified, in the plural
    key: str  # field of a prediction that holds the class
    classes: Mapping[Any, str]  # in the order of the head's scores, each with its word
    judged: Callable[[Record], Iterable[Judged]]

    @property
    def scoring(self) -> TaskScoring:
        return TaskScoring(
            noun=self.noun,
            key=self.key,
            shown=("accuracy",),
            score=self.score,
            baselines=self.baselines,
            gain=self.gain,
            questions=self.questions,
            answered=self.answered,
        )

    def build(self, given: TaskOptions) -> VerdictTask:
        return VerdictTask(self, given.tokens, given.max_words)

    def known(self, records: Iterable[Record]) -> list[tuple[str, Judged]]:
        """Return all sentences whose class is known, each with the key of its image."""
        return [(record.key, one) for record in records for one in self.judged(record) if one.label is not None]

    def hits(self, predicted: Mapping[str, Any], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
        """Return 1 (right) or 0 for each labelled sentence of the records, and the keys of their images."""
        known = self.known(records)
        if not known:
            raise DataError(f"no record has {self.noun} to score; choose another split with --split")
        right = [float(predicted[one.key] == one.label) for _, one in known]
        return np.array(right), [picture for picture, _ in known]

    def score(
        self, predicted: Mapping[str, Any], records: Sequence[Record], baselines: Baselines | None = None
    ) -> Scores:
        return share_scores(self.task, {"accuracy": self.hits(predicted, records)}, self.noun, baselines)

    def baselines(self, records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
        """Return the blind baseline: the better of a rule on first words and a bigram classifier."""
        scored, learnt = ([one for _, one in self.known(some)] for some in (records, training))
        chance = 1 / len(self.classes)
        if not scored:
            return Baselines()
        if not learnt:
            return Baselines({"accuracy": chance}, {}, ("blind: at random",))
        known, queries = (list(map(self.as_question, some)) for some in (learnt, scored))
        rule = BlindAnswers.of(known)
        words = [self.classes[one.label] for one in scored]
        given = [list(answers.values()) for answers in (rule.answers(queries), learnt_answers(known, queries))]
        right = [float(np.mean([guess == word for guess, word in zip(some, words, strict=True)])) for some in given]
        majority = float(np.mean([rule.overall == word for word in words]))
        better, about = stronger(
            right[0], right[1], "the most frequent class in training of sentences with the same first words"
        )
        labels = {word: label for label, word in self.classes.items()}
        predicted = {one.key: labels[word] for one, word in zip(scored, given[better], strict=True)}
        notes = (
            f"{about}; at random: {100 * chance:.1f}",
            f"learnt on {len(learnt)} {self.noun}; “{rule.overall}” to all {self.noun} gets {100 * majority:.1f}",
        )
        return Baselines({"accuracy": right[better]}, {}, notes, predicted)

    def gain(self, first: Mapping[str, Any], second: Mapping[str, Any], records: Sequence[Record]) -> Score:
        """Return the paired difference in accuracy, second minus first, by bootstrap over images."""
        ours, theirs = (rows_by_picture(*self.hits(predicted, records)) for predicted in (second, first))
        return score_of("accuracy", paired_interval(ours, theirs))

    def questions(self, record: Record) -> Iterable[Question]:
        return (self.as_question(one) for _, one in self.known([record]))

    def answered(self, predicted: Mapping[str, Any]) -> dict[str, str]:
        return {f"{key}/{self.task}": self.classes[label] for key, label in predicted.items()}

    def as_question(self, one: Judged) -> Question:
        """Return a sentence as a question that ten people answered with its class."""
        return Question(f"{one.key}/{self.task}", one.text, (self.classes[one.label],) * 10, self.task)


@dataclass(frozen=True)
class VerdictTask:
    """Classify each sentence about an image; `verdicts` has the classes."""

    verdicts: Verdicts
    tokens: Tokens
    max_words: int = 24

    @property
    def name(self) -> str:
        return self.verdicts.task

    def samples(self, record: Record) -> list[Sample]:
        return [sample for sample in self.queries(record) if sample.truth]

    def queries(self, record: Record) -> list[Sample]:
        numbers = {label: number for number, label in enumerate(self.verdicts.classes)}
        items = [
            (one, {"class": numbers[one.label]} if one.label is not None else {})
            for one in self.verdicts.judged(record)
        ]
        return [
            Sample(one.key, record.key, record.regions, encode(self.tokens, one.text, self.max_words), truth=truth)
            for one, truth in items
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the most probable class of each sentence, with its probability."""
        scores = model.heads[self.name](model(batch.for_head(self.name))).float()
        finite(scores, batch)
        probability, best = scores.softmax(-1).max(-1)
        classes = tuple(self.verdicts.classes)
        rows = zip(batch.keys, best.tolist(), probability.tolist(), strict=True)
        return [{"key": key, self.verdicts.key: classes[number], "score": score} for key, number, score in rows]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the accuracy, times 100."""
        labels = {prediction["key"]: prediction[self.verdicts.key] for prediction in predictions}
        return {"accuracy": 100 * float(self.verdicts.hits(labels, records)[0].mean())}
