"""Tasks that classify sentences about an image, such as whether a statement is true."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from diptych.core import Batch, Question, Record, Sample
from diptych.data.store.tokens import Tokens
from diptych.metrics.bootstrap import paired_interval, rows_by_picture
from diptych.runtime.errors import counted
from diptych.tasks.baselines import BlindAnswers, learnt_answers, stronger
from diptych.tasks.run import encode, finite
from diptych.tasks.scores import Baselines, ItemScore, Score, Scores, present, score_of, share_scores
from diptych.tasks.spec import TaskOptions, TaskScoring


@dataclass(frozen=True)
class Judged:
    """A sentence about an image and its class. `label` is None if the class is unknown."""

    key: str
    text: str
    label: Any


@dataclass(frozen=True)
class Verdicts:
    """The settings, scoring and baselines of a task that classifies sentences. The task's `TaskSpec` uses them."""

    task: str  # name of the task, which is also the name of the model's head
    noun: str  # name of the sentences, in the plural, such as "statements"
    key: str  # the field of a prediction that holds its class
    # {class: word for it}, in the order of the head's outputs; empty: the labels in the data.
    classes: Mapping[Any, str]
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
        )

    def build(self, given: TaskOptions) -> VerdictTask:
        return VerdictTask(self, given.tokens, given.max_words)

    def word(self, label: Any) -> str:
        """Return the word for a class, such as "yes" for True. A label from the data is its own word."""
        return self.classes[label] if self.classes else str(label)

    def known(self, records: Iterable[Record]) -> list[tuple[str, Judged]]:
        """Return (key of the image, sentence) for all sentences whose class is known."""
        return [(record.key, one) for record in records for one in self.judged(record) if one.label is not None]

    def hits(self, predicted: Mapping[str, Any], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
        """Return 1.0 (right) or 0.0 for each sentence with a known class, and the keys of their images."""
        known = present(self.known(records), f"{self.noun} to score")
        right = [float(predicted[one.key] == one.label) for _, one in known]
        return np.array(right), [picture for picture, _ in known]

    def score(
        self, predicted: Mapping[str, Any], records: Sequence[Record], baselines: Baselines | None = None
    ) -> Scores:
        rows = self.rows(predicted, records, baselines)
        return share_scores(self.task, {"accuracy": self.hits(predicted, records)}, self.noun, baselines, rows)

    def rows(
        self, predicted: Mapping[str, Any], records: Sequence[Record], baselines: Baselines | None
    ) -> tuple[ItemScore, ...]:
        """Return the score of each sentence with a known class: 1 (right) or 0."""
        made = []
        for picture, one in self.known(records):
            given, wanted = self.given(predicted[one.key]), self.word(one.label)
            blind = None if baselines is None or baselines.predicted is None else baselines.predicted.get(one.key)
            usual = "" if blind is None else self.given(blind)
            made.append(ItemScore(one.key, picture, one.text, given, wanted, float(given == wanted), self.task, usual))
        return tuple(made)

    def given(self, prediction: Any) -> str:
        """Return the word for the predicted class."""
        return self.word(prediction)

    def baselines(self, records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
        """Return the blind baseline: the better of `BlindAnswers` (a rule on first words) and a bigram classifier."""
        scored, learnt = ([one for _, one in self.known(some)] for some in (records, training))
        codes = self.codes((*scored, *learnt))
        chance = 1 / max(1, len(codes))
        if not scored:
            return Baselines()
        if not learnt:
            return Baselines({"accuracy": chance}, {}, ("blind: at random",))
        known, queries = ([self.as_question(one, codes[one.label]) for one in some] for some in (learnt, scored))
        rule = BlindAnswers.of(known)
        words = [codes[one.label] for one in scored]
        given = [list(answers.values()) for answers in (rule.answers(queries), learnt_answers(known, queries))]
        right = [float(np.mean([guess == word for guess, word in zip(some, words, strict=True)])) for some in given]
        majority = float(np.mean([rule.overall == word for word in words]))
        better, about = stronger(
            right[0], right[1], "the most frequent training class of sentences with the same first words"
        )
        labels = {code: label for label, code in codes.items()}
        usual = self.word(labels[rule.overall])
        predicted = {one.key: labels[word] for one, word in zip(scored, given[better], strict=True)}
        notes = (
            f"{about}; at random: {100 * chance:.1f}",
            f"learnt on {counted(learnt, self.noun)}; “{usual}” to all {self.noun} gets {100 * majority:.1f}",
        )
        return Baselines({"accuracy": right[better]}, {}, notes, predicted)

    def gain(self, first: Mapping[str, Any], second: Mapping[str, Any], records: Sequence[Record]) -> Score:
        """Return the difference in accuracy, second minus first, with a paired bootstrap interval over images."""
        ours, theirs = (rows_by_picture(*self.hits(predicted, records)) for predicted in (second, first))
        return score_of("accuracy", paired_interval(ours, theirs))

    def codes(self, judged: Iterable[Judged]) -> dict[Any, str]:
        """Return a word for each class that the baselines can use as an answer.

        Labels of the data become "label0", "label1" ...
        """
        return dict(self.classes) or {name: f"label{at}" for at, name in enumerate(sorted({j.label for j in judged}))}

    def as_question(self, one: Judged, answer: str) -> Question:
        """Convert a sentence to a question that ten people answered with `answer`, for blind baselines."""
        return Question(f"{one.key}/{self.task}", one.text, (answer,) * 10, self.task)


@dataclass(frozen=True)
class VerdictTask:
    """Classify sentences about images into the classes of `verdicts`."""

    verdicts: Verdicts
    tokens: Tokens
    max_words: int = 24

    @property
    def name(self) -> str:
        return self.verdicts.task

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes, in the order of the head's outputs."""
        return tuple(self.verdicts.classes)

    def samples(self, record: Record) -> list[Sample]:
        return [sample for sample in self.queries(record) if sample.truth]

    def queries(self, record: Record) -> list[Sample]:
        numbers = {label: number for number, label in enumerate(self.classes)}
        items = [
            (one, {"class": numbers[one.label]} if one.label in numbers else {}) for one in self.verdicts.judged(record)
        ]
        return [
            Sample(one.key, record.key, record.regions, encode(self.tokens, one.text, self.max_words), truth=truth)
            for one, truth in items
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the most probable class of each sentence, with its probability as "score"."""
        probability, best = self.probabilities(model, batch).max(-1)
        rows = zip(batch.keys, best.tolist(), probability.tolist(), strict=True)
        return [{"key": key, self.verdicts.key: self.classes[number], "score": score} for key, number, score in rows]

    def probabilities(self, model: Any, batch: Batch) -> Float[Tensor, "B K"]:
        """Return the class probabilities of each sentence."""
        scores: Tensor = model.heads[self.name](model(batch.for_head(self.name))).float()
        finite(scores, batch)
        return scores.softmax(-1)

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the accuracy, times 100."""
        labels = {prediction["key"]: prediction[self.verdicts.key] for prediction in predictions}
        return {"accuracy": 100 * float(self.verdicts.hits(labels, records)[0].mean())}
