"""VQA accuracy (Antol et al., ICCV 2015; VQA v2's evaluation server): 0 to 1, papers print it times 100.

Ten people answered each question. A predicted answer is compared with each group of nine people. The answer's score in
a group is min(1, people who gave this answer / 3). The accuracy is the mean of the ten scores: 0, 0.3, 0.6, 0.9 or 1.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal
from unicodedata import normalize

from diptych.core.record import Question
from diptych.core.vocabulary import UNSEEN, with_final_sigma
from diptych.metrics.tokenise import WORD
from diptych.runtime.errors import DataError

_PEOPLE = 10
_ENOUGH = 3  # an answer that at least this many annotators gave has the full score
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)} | {"none": "0"}
_ARTICLES = frozenset(["a", "an", "the"])
# Deletes invisible characters. Replaces curly quotes, and full-width punctuation and digits, by their ASCII forms.
_USUAL = str.maketrans("\n\t\u3000‘’‛ʼ“”„", "   " + 4 * "'" + 3 * '"', f"\u200b\ufeff{UNSEEN}")
_USUAL |= {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'  # characters to remove; not the apostrophe, colon and full stop
_CONTRACTED = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""


# The official VQA table adds missing apostrophes to contractions; one of its entries removes an apostrophe.
_CONTRACTIONS = {
    word[:at] + word[at + 1 :]: word for word in _CONTRACTED.split() for at, sign in enumerate(word) if sign == "'"
}
_CONTRACTIONS["somebody'd"] = "somebodyd"


@lru_cache(maxsize=2**16)  # a cache, because most answers occur many times
def normalise_answer(answer: str) -> str:
    """Return the official normal form: `Two  dogs.` equals `2 dogs`, and `the cat` equals `cat`.

    A punctuation sign is removed if it occurs next to a space, or if the answer has a comma between digits. Otherwise
    it becomes a space. A full stop is removed unless a digit follows. Unlike the official form, an answer of only
    articles or signs (`A`, `?`) is kept, in lower case, and curly quotes and full-width characters equal plain ones.
    """
    answer = _one_line(answer)
    in_number = re.search(r"\d,\d", answer) is not None
    bare = answer
    for sign in _PUNCTUATION:
        at_space = f"{sign} " in answer or f" {sign}" in answer
        bare = bare.replace(sign, "" if in_number or at_space else " ")
    bare = re.sub(r"\.(?!\d)", "", bare)
    words = (_DIGITS.get(word, word) for word in bare.lower().split())
    normal = " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)
    own = bare if bare.strip() and not re.search(r"\w[+-]", answer) else answer  # so that A+ does not become A
    return with_final_sigma(normalize("NFC", normal or " ".join(own.lower().split())))


def answer_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return the official accuracy of a predicted answer, 0 to 1.

    As in the official code, ten identical answers are not normalised. With fewer than ten answers, as
    in a user's own data, the accuracy is min(1, share of people who gave the answer / 0.3). With one answer, it is 0 or
    1.
    """
    answers = [_one_line(answer) for answer in answers]
    prediction = _one_line(prediction)
    if len(set(answers)) > 1 or len(answers) != _PEOPLE:  # the official code does not normalise ten identical answers
        answers = [normalise_answer(answer) for answer in answers]
        prediction = normalise_answer(prediction)
    return _agreement(answers.count(prediction), len(answers))


def is_unreachable(answers: Sequence[str]) -> bool:
    """Return True if no model can be right: ten identical answers that are not in normal form, such as `Green`."""
    return bool(answers) and not any(answer_accuracy(normalise_answer(answer), answers) for answer in set(answers))


def first_words(question: str) -> str:
    """Return the first two words of a question, such as `what color`, in lower case and without punctuation."""
    return " ".join(WORD.findall(question.lower())[:2])


def vqa_scores(predictions: Mapping[str, str], questions: Iterable[Question]) -> dict[str, float]:
    """Return the mean accuracy (0 to 1) over all questions ("all"), and for each answer type, such as "yes/no".

    Raises DataError if there are no questions, or if a question has no answers or no prediction.
    """
    by_kind: dict[str, list[float]] = {"all": []}
    for question in questions:
        if question.key not in predictions:
            raise DataError("this question has no predicted answer; predict it, or leave it out", key=question.key)
        if not question.answers:
            raise DataError("this question has no true answers; add some, or leave it out", key=question.key)
        accuracy = answer_accuracy(predictions[question.key], question.answers)
        by_kind["all"].append(accuracy)
        by_kind.setdefault(question.kind, []).append(accuracy)
    if not by_kind["all"]:
        raise DataError("found no questions, so nothing can be scored; pass some")
    return {kind: sum(accuracies) / len(accuracies) for kind, accuracies in by_kind.items()}


def soft_targets(
    answers: Sequence[str], rule: Literal["leave_one_out", "simple"] = "leave_one_out"
) -> dict[str, float]:
    """Return soft targets for training: normalised answer -> score (above 0, up to 1).

    leave_one_out: the accuracy of the answer, so 0.3, 0.6, 0.9 or 1 with ten answers (VL-BERT; Pythia).
    simple: min(1, people who gave the answer / 3).
    """
    counts = Counter(normalise_answer(answer) for answer in answers if answer.strip())
    return {answer: _agreement(count, len(answers), rule == "leave_one_out") for answer, count in counts.items()}


def _agreement(votes: int, people: int, leave_one_out: bool = True) -> float:
    """Return the score of an answer that `votes` of `people` gave."""
    if people < _PEOPLE:
        return min(1.0, votes / people * _PEOPLE / _ENOUGH)
    if not leave_one_out:
        return min(1.0, votes / _ENOUGH)
    with_one_fewer = votes * min(1.0, (votes - 1) / _ENOUGH)  # sum over the groups without one of the voters
    return (with_one_fewer + (people - votes) * min(1.0, votes / _ENOUGH)) / people


def _one_line(answer: str) -> str:
    return normalize("NFC", answer.translate(_USUAL)).strip() or answer.strip()  # NFC: macOS writes é as two characters
