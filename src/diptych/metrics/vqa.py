"""VQA accuracy (Antol et al., ICCV 2015; VQA v2's evaluation server): 0 to 1, papers print it times 100.

Ten people answered each question. An answer that three of the others gave is right: for each person in turn the
score is min(1, other people who said so / 3), and the accuracy is the mean of the ten, so 0, 0.3, 0.6, 0.9 or 1.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from diptych.core.record import Question
from diptych.runtime.errors import DataError

_PEOPLE = 10
_ENOUGH = 3  # people who agree
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)} | {"none": "0"}
_ARTICLES = frozenset(["a", "an", "the"])
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'  # the apostrophe, the colon and the full stop are not in it
_CONTRACTED = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""


def _with_one_apostrophe_missing(word: str) -> list[str]:
    return [word[:place] + word[place + 1 :] for place, character in enumerate(word) if character == "'"]


# The official table maps a contraction with any one apostrophe left out to the whole; one entry goes the other way.
_CONTRACTIONS = {missing: word for word in _CONTRACTED.split() for missing in _with_one_apostrophe_missing(word)}
_CONTRACTIONS["somebody'd"] = "somebodyd"


@lru_cache(maxsize=2**16)  # people say the same few objects
def normalise_answer(answer: str) -> str:
    """The official normal form: `Two  dogs.` and `2 dogs` are one answer, and so are `the cat` and `cat`.

    A sign beside a space goes; between letters it becomes a space; where the answer has a comma between digits, every
    sign goes. A full stop goes unless a digit follows.
    """
    answer = _one_line(answer)
    together = re.search(r"\d,\d", answer) is not None
    bare = answer
    for sign in _PUNCTUATION:
        beside_space = f"{sign} " in answer or f" {sign}" in answer
        bare = bare.replace(sign, "" if together or beside_space else " ")
    bare = re.sub(r"\.(?!\d)", "", bare)
    words = (_DIGITS.get(word, word) for word in bare.lower().split())
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


def answer_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Accuracy of one answer, 0 to 1, officially: where all people agree to the letter, nothing is normalised.

    With fewer than ten answers, as in a user's own data, nobody is left out and three in ten must agree:
    min(1, share who said so / 0.3). One answer is then right or wrong.
    """
    answers = [_one_line(answer) for answer in answers]
    prediction = _one_line(prediction)
    if len(set(answers)) > 1:
        answers = [normalise_answer(answer) for answer in answers]
        prediction = normalise_answer(prediction)
    return _agreement(answers.count(prediction), len(answers), leave_one_out=True)


def vqa_scores(predictions: Mapping[str, str], questions: Iterable[Question]) -> dict[str, float]:
    """Mean accuracy, 0 to 1, over all questions ("all") and by kind ("yes/no", "number", "other", ...).

    Every question must be predicted and have answers.
    """
    by_kind: dict[str, list[float]] = {"all": []}
    for question in questions:
        if question.key not in predictions:
            raise DataError("a question has no predicted answer; answer it, or leave it out", key=question.key)
        if not question.answers:
            raise DataError("a question has no answers to score against", key=question.key)
        accuracy = answer_accuracy(predictions[question.key], question.answers)
        by_kind["all"].append(accuracy)
        by_kind.setdefault(question.kind, []).append(accuracy)
    if not by_kind["all"]:
        raise DataError("no question to score")
    return {kind: sum(accuracies) / len(accuracies) for kind, accuracies in by_kind.items()}


def soft_targets(
    answers: Sequence[str], rule: Literal["leave_one_out", "simple"] = "leave_one_out"
) -> dict[str, float]:
    """Soft targets to train on: each normal form that was given and its score, above 0 and up to 1.

    leave_one_out: the accuracy this answer would get, so of ten answers .3, .6, .9, 1 (VL-BERT; Pythia);
    simple: min(1, people / 3).
    """
    counts = Counter(normalise_answer(answer) for answer in answers)
    leave_one_out = rule == "leave_one_out"
    return {
        answer: _agreement(count, len(answers), leave_one_out=leave_one_out)
        for answer, count in counts.items()
        if answer  # `the` is nothing but an article
    }


def _agreement(said_so: int, people: int, *, leave_one_out: bool) -> float:
    if people < _PEOPLE:
        return min(1.0, said_so / people * _PEOPLE / _ENOUGH)
    if not leave_one_out:
        return min(1.0, said_so / _ENOUGH)
    with_one_fewer = said_so * min(1.0, (said_so - 1) / _ENOUGH)  # when one who said so is left out
    return (with_one_fewer + (people - said_so) * min(1.0, said_so / _ENOUGH)) / people


def _one_line(answer: str) -> str:
    return answer.replace("\n", " ").replace("\t", " ").strip()
