"""Visual question answering as a choice among frequent answers (VQA v2's usual form)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import Batch, Record, Sample
from diptych.errors import CheckpointError, DataError
from diptych.files import write_atomically
from diptych.loading.tokens import Tokens
from diptych.metrics.vqa import normalise_answer, soft_targets, vqa_scores
from diptych.models.heads import answer_probabilities
from diptych.tasks.vcr import finite

FILE = "answers.json"
UNKNOWN = "<unk>"  # class 0, never given as an answer


@dataclass(frozen=True)
class Answers:
    """The answers that a model can give; number 0 stands for all others."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[Record], at_least: int = 1, most: int | None = None) -> Answers:
        """Answers that at least so many questions have as their most frequent one, most frequent first."""
        counts: Counter[str] = Counter()
        for record in records:
            for question in record.questions:
                if question.answers:
                    counts[Counter(map(normalise_answer, question.answers)).most_common(1)[0][0]] += 1
        frequent = sorted((answer for answer, n in counts.items() if n >= at_least), key=lambda a: (-counts[a], a))
        if not frequent:
            raise DataError("no question of the data has an answer; VQA needs lines with a question and answers")
        return cls((UNKNOWN, *frequent[:most]))

    @classmethod
    def load(cls, folder: Path) -> Answers:
        path = folder / FILE
        try:
            return cls(tuple(json.loads(path.read_text("utf-8"))))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{path} is no list of answers ({error}); fine-tune the model for VQA first"
            ) from error

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, json.dumps(self.names, ensure_ascii=False, indent=0).encode())

    def scores(self, answers: Sequence[str]) -> dict[int, float]:
        """Soft targets: the accuracy that each known answer would get; answers outside the list get none."""
        numbers = {name: number for number, name in enumerate(self.names)}
        return {numbers[a]: s for a, s in soft_targets(answers).items() if a in numbers and a != UNKNOWN}


@dataclass(frozen=True)
class Vqa:
    tokens: Tokens
    answers: Answers
    max_words: int = 20
    slot: bool = False  # a [MASK] and another [SEP] follow the question: its answer is read there
    exclusive: bool = False  # answers were learnt against each other: probabilities sum to 1

    name = "vqa"

    def samples(self, record: Record) -> list[Sample]:
        """Questions of which at least one answer is known; the others teach nothing and are counted by `check`."""
        return [s for s in self.queries(record) if s.truth["answer_scores"]]

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(
                key=question.key,
                picture=record.key,
                regions=record.regions,
                text=self._text(question.text),
                truth={"answer_scores": self.answers.scores(question.answers)},
            )
            for question in record.questions
        ]

    def _text(self, question: str) -> Int[Tensor, "T"]:
        vocabulary = self.tokens.vocabulary
        slot = [vocabulary.mask, vocabulary.sep] if self.slot else []
        return torch.tensor([*self.tokens.encode(question)[: self.max_words], vocabulary.sep, *slot])

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        logits = model.heads["answer"](model(batch)).float()
        finite(logits, batch)
        logits[..., 0] = -torch.inf
        probability, best = answer_probabilities(logits, self.exclusive).max(-1)
        return [
            {"key": key, "answer": self.answers.names[number], "score": score}
            for key, number, score in zip(batch.keys, best.tolist(), probability.tolist(), strict=True)
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Official accuracy, times 100: of all questions, and by the kind of answer."""
        given = {p["key"]: p["answer"] for p in predictions}
        questions = [q for record in records for q in record.questions]
        if not questions:
            raise DataError("no record has questions to score; choose another split with --split")
        scores = vqa_scores(given, questions)
        return {"accuracy": 100 * scores.pop("all")} | {f"accuracy {kind}": 100 * s for kind, s in scores.items()}
