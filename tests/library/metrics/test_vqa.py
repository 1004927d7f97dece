import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diptych.core import Question
from diptych.metrics.vqa import (
    answer_accuracy,
    first_words,
    is_unreachable,
    normalise_answer,
    soft_targets,
    vqa_scores,
)
from diptych.runtime.errors import DataError


# Right-hand sides are what the official vqaEval.py of GT-Vision-Lab/VQA (a013f00) gives, run under Python 3.
@pytest.mark.parametrize(
    ("answer", "normal"),
    [
        ("The two  Dogs.", "2 dogs"), ("an apple", "apple"), ("none", "0"), ("ten", "10"), ("it's", "it's"),
        ("dont", "don't"), ("couldn'tve", "couldn't've"), ("somebody'd", "somebodyd"), ("1,000 people", "1000 people"),
        ("one, two", "1 2"), ("yes/no", "yes no"), ("t-shirt", "t shirt"), ("t - shirt", "t shirt"), ("3.5", "3.5"),
        ("u.s.a.", "usa"), ('"Coca-Cola"', "coca cola"), ("what?", "what"), ("7:30", "7:30"), ("a\tb\nc", "b c"),
        ("12,5-6", "1256"),
    ],
)  # fmt: skip
def test_official_normal_form(answer: str, normal: str) -> None:
    assert normalise_answer(answer) == normal


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("A", "a"), ("the", "the"), ("a an", "a an"), ("The.", "the"), ("?", "?"), ("...", "..."), (" ", ""),
        ("A+", "a+"), ("A-", "a-"),
    ],
)  # fmt: skip
def test_an_answer_of_articles_or_signs_alone_stays_itself(answer: str, kept: str) -> None:
    """The official form is empty: which letter is on the sign could never be answered with A."""
    assert normalise_answer(answer) == kept


@given(st.text(alphabet="aA tThe1,0-+.'?!oneO\n/İß\u0301\u200b", max_size=12))
@example("e.\u0301")
def test_an_answer_in_normal_form_stays_as_it_is_and_is_never_emptied(answer: str) -> None:
    normal = normalise_answer(answer)
    assert bool(normal) == bool(answer.strip())
    assert normalise_answer(normal) == normal
    assert answer_accuracy(normal, [answer]) == 1 or not normal


def test_an_answer_typed_on_a_mac_is_the_same_answer() -> None:
    """Its letters with accents are two characters there, as names of files are."""
    assert answer_accuracy("café", ["cafe\u0301"]) == answer_accuracy("cafe\u0301", ["café"] * 10) == 1
    assert soft_targets(["café", "cafe\u0301"]) == {"café": 1}
    assert normalise_answer("\ufeffyes\u200b") == "yes", "signs of web pages that are not seen"


@pytest.mark.parametrize(
    ("answer", "plain"),
    [("dog’s", "dog's"), ("２", "2"), ("“Stop”", '"stop"'), ("\u200e5", "5"), ("ＹＥＳ", "yes"), ("ΣΚΥΛΟΣ", "σκυλοσ")],
)
def test_other_forms_of_a_character_are_the_same_answer(answer: str, plain: str) -> None:
    assert normalise_answer(answer) == normalise_answer(plain)
    assert answer_accuracy(plain, [answer]) == 1 == answer_accuracy(answer, [plain])


def ten(**counts: int) -> list[str]:
    return [answer for answer, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize(("people", "accuracy"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (9, 1.0)])
def test_ten_people_one_left_out(people: int, accuracy: float) -> None:
    assert answer_accuracy("red", ten(red=people, blue=10 - people)) == pytest.approx(accuracy)


def test_unanimous_answers_are_taken_to_the_letter() -> None:
    """As the official code does: it normalises only where people differ."""
    assert answer_accuracy("two", ten(two=10)) == 1
    assert answer_accuracy("2", ten(two=10)) == 0
    assert answer_accuracy("2", ten(two=9, three=1)) == 1


@pytest.mark.parametrize(
    "answer", ["Green", "Two", "the postman.", "T-shirt", "1,000", "A", "none", "Yes!", "it's", "U.S."]
)
def test_one_answer_a_question_is_given_in_any_form(answer: str) -> None:
    """A user's own data: only VQA's own ten answers are compared to the letter where they are equal."""
    for people in (1, 3, 9, 11):
        (target,) = soft_targets([answer] * people)
        assert answer_accuracy(target, [answer] * people) == answer_accuracy(answer.upper(), [answer] * people) == 1
        assert not is_unreachable([answer] * people)
    assert is_unreachable([answer] * 10) == (answer != normalise_answer(answer))
    assert not is_unreachable([answer] * 9 + ["other"])


def test_fewer_answers_than_ten() -> None:
    assert answer_accuracy("red", ["red"]) == 1
    assert answer_accuracy("Red.", ["red", "blue"]) == 1
    assert answer_accuracy("red", ["red", "blue", "blue", "blue", "blue"]) == pytest.approx(2 / 3)
    assert answer_accuracy("red", ["blue"]) == 0


answers = st.lists(st.sampled_from(["red", "Red.", "two", "2", "yes", "the dog"]), min_size=1, max_size=12)


@given(answers)
def test_a_soft_target_is_the_accuracy_it_would_get(given_answers) -> None:
    if len(set(given_answers)) > 1:
        for answer, score in soft_targets(given_answers).items():
            assert 0 < score <= 1
            assert answer_accuracy(answer, given_answers) == score


def test_soft_targets_by_either_rule() -> None:
    given_answers = ten(red=1, blue=3, green=6)
    assert soft_targets(given_answers) == pytest.approx({"red": 0.3, "blue": 0.9, "green": 1})
    assert soft_targets(given_answers, rule="simple") == pytest.approx({"red": 1 / 3, "blue": 1, "green": 1})
    assert soft_targets([]) == soft_targets([" "]) == {}


def question(key: str, answers: list[str], kind: str) -> Question:
    return Question(key=key, text="?", answers=tuple(answers), kind=kind)


@pytest.mark.parametrize(
    ("question", "first"),
    [("What's  this, a dog?", "what s"), ("यह क्या है?", "यह क्या"), ("மொழி ஒரு", "மொழி ஒரு"), ("why", "why")],
)
def test_the_kind_of_a_question_is_its_first_two_words(question: str, first: str) -> None:
    assert first_words(question) == first


def test_accuracy_by_kind() -> None:
    questions = [
        question("1", ten(yes=10), "yes/no"),
        question("2", ten(two=8, three=2), "number"),
        question("3", ten(red=10), "other"),
    ]
    scores = vqa_scores({"1": "yes", "2": "3", "3": "blue"}, questions)
    assert scores == pytest.approx({"all": 1.6 / 3, "yes/no": 1, "number": 0.6, "other": 0})


@pytest.mark.parametrize(
    ("predictions", "questions", "message"),
    [
        ({}, [], "found no questions"),
        ({}, [question("7", ["yes"], "yes/no")], r"no predicted answer.*\(record 7\)"),
        (
            {"7": "yes"},
            [question("7", [], "yes/no")],
            r"this question has no true answers; add some, or leave it out \(record 7\)",
        ),
    ],
)
def test_what_cannot_be_scored(predictions, questions, message) -> None:
    with pytest.raises(DataError, match=message):
        vqa_scores(predictions, questions)
