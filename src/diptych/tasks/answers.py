"""The answer vocabulary of a model: VQA's frequent answers, or the labels of another classification task."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from diptych.core import Question, Record
from diptych.metrics.vqa import is_unreachable, normalise_answer, soft_targets
from diptych.runtime.errors import CheckpointError, DataError, counted, explained
from diptych.runtime.files import parse_json, text_of, write_atomically

FILE = "answers.json"
OF_VQA = "vqa"  # the task of an answers.json that does not name one
UNKNOWN = "<unk>"  # answer of class 0, which is never predicted
# VQA's normalisation drops these signs, although they change the meaning of an answer: -5, <5, 1,5 (not 1,000), C++.
_SIGNS = re.compile(r"(?<!\w)[-+<>]+(?=\s?\d)|\d,\d(?!\d\d\b)|\w[-+]+(?!\w)")


@dataclass(frozen=True)
class Answers:
    """The answers that a model can give.

    Class 0 means "any other answer"; only TDEN's published list lacks this class.
    """

    names: tuple[str, ...]
    temperature: float = 1.0  # the logits of the answers are divided by this number (tasks/calibration.py)
    # Answers with this probability or a lower one are not sure (None: not measured).
    sure_above: float | None = None
    # The task that the list of answers belongs to. A model of another task rejects the list.
    task: str = OF_VQA

    @classmethod
    def of(cls, records: Iterable[Record], at_least: int = 1, most: int | None = None) -> Answers:
        """Collect the answers that are the most frequent answer to at least `at_least` questions each.

        They are sorted by frequency, highest first. At most `most` answers are kept (None: all).

        Raises DataError if there are no answers.
        """
        counts: Counter[str] = Counter()
        for record in records:
            for question in record.questions:
                given = Counter(normalise_answer(answer) for answer in question.answers if answer.strip())
                counts.update(best for best, _ in given.most_common(1))
        frequent = sorted((answer for answer, n in counts.items() if n >= at_least), key=lambda a: (-counts[a], a))
        if not frequent:
            raise DataError("no question has an answer, but VQA needs answers to train; add `answers` to the data")
        return cls((UNKNOWN, *frequent[:most]))

    @classmethod
    def load(cls, folder: Path) -> Answers:
        path = folder / FILE
        with explained(CheckpointError, f"{path} is not a list of answers", "fine-tune the model on VQA"):
            names, temperature, limit, task = parse_json(text_of(path)), 1.0, None, OF_VQA
            if isinstance(names, dict):
                temperature, task = float(names["temperature"]), str(names.get("task", OF_VQA))
                limit = None if names.get("sure_above") is None else float(names["sure_above"])
                names = names["names"]
            if limit is not None and not 0 <= limit <= 1:
                raise ValueError(f"found sure_above {limit}, expected 0 to 1")
            if not 0.01 < temperature < 100:
                raise ValueError(f"found the temperature {temperature}, expected 0.01 to 100")
            if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
                raise ValueError(f"found {names!r:.60}, expected a list of at least two texts")
            "".join(names).encode()
            return cls(tuple(names), temperature, limit, task)

    def save(self, folder: Path) -> None:
        kept: object = self.names
        if self != Answers(self.names):
            kept = asdict(self)
        write_atomically(folder / FILE, json.dumps(kept, ensure_ascii=False, indent=0).encode())

    def scores(self, answers: Sequence[str]) -> dict[int, float]:
        """Return the soft targets of a question as {class: VQA accuracy}, for the answers that are in the list."""
        return {self._numbers[a]: s for a, s in soft_targets(answers).items() if a in self._numbers}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Map answers to classes, both as listed (such as `t-shirt`) and in VQA's normal form (`t shirt`)."""
        names = {name: number for number, name in enumerate(self.names) if name != UNKNOWN}
        return {normalise_answer(name): number for name, number in reversed(names.items())} | names


def answered_questions(records: Iterable[Record]) -> list[Question]:
    """Return the questions that have reference answers."""
    return [question for record in records for question in record.questions if question.answers]


def outside_notes(outside: Sequence[tuple[str, str]], total: int, noun: str, fate: str) -> Iterator[str]:
    """Yield a warning about items, as (key, answer), whose answers are not in the model's list."""
    if outside:
        yield (
            f"{len(outside)} of {total} {noun} {fate}: the model's list has none of their answers "
            f"(the first: {outside[0][0]}, {outside[0][1]!r})"
        )


def rule_notes(questions: Sequence[Question]) -> list[str]:
    """Return warnings about VQA's scoring rule: unreachable answers, and different answers that it counts as equal."""
    return [*_unreachable(questions), *_equal_by_rule(questions)]


def _unreachable(questions: Sequence[Question]) -> list[str]:
    """Return a warning about questions that VQA's rule always scores 0: their ten answers are equal and not in normal
    form."""
    lost = [question for question in questions if is_unreachable(question.answers)]
    about = f"{len(lost)} of {len(questions)} questions have ten equal answers that are not in normal form"
    rule = "the official rule compares these letter by letter, so an answer in normal form scores 0"
    return [f"{about} (the first: {lost[0].key}, {lost[0].answers[0]!r}): {rule}"] if lost else []


def _equal_by_rule(questions: Sequence[Question]) -> list[str]:
    """Return a warning about answers that become equal when VQA's rule drops a sign, such as `5` and `-5`."""
    forms: dict[str, dict[tuple[str, ...], str]] = {}
    for answer in dict.fromkeys(answer for question in questions for answer in question.answers):
        forms.setdefault(normalise_answer(answer), {}).setdefault(tuple(_SIGNS.findall(answer)), answer)
    equal = [list(answers.values()) for answers in forms.values() if len(answers) > 1]
    if not equal:
        return []
    about = f"VQA's rule drops signs, so {' and '.join(map(repr, equal[0]))} are one answer"
    more = f" (and {counted(len(equal) - 1, 'further such groups')})" if len(equal) > 1 else ""
    return [f"{about}{more}: models cannot distinguish them, and any of them is scored as right; write them in words"]
