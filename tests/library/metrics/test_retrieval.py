import numpy as np
import pytest

from diptych.metrics.retrieval import recalls, retrieval_ranks, same_texts
from diptych.runtime.errors import DataError

# Two pictures with two captions each, and a third with one.
OWNERS = [0, 0, 1, 1, 2]


def test_recalls_by_hand() -> None:
    scores = [
        [0.9, 0.1, 0.8, 0.0, 0.2],  # its first caption is best
        [0.7, 0.3, 0.5, 0.6, 0.9],  # two wrong ones before its best
        [0.1, 0.2, 0.3, 0.4, 0.8],
    ]
    ranks = retrieval_ranks(scores, OWNERS)
    assert ranks.of_captions.tolist() == [0, 2, 0]
    assert ranks.of_pictures.tolist() == [0, 2, 1, 0, 1]
    assert recalls(ranks, at=(1, 2)) == pytest.approx(
        {
            "text retrieval R@1": 2 / 3,
            "text retrieval R@2": 2 / 3,
            "image retrieval R@1": 2 / 5,
            "image retrieval R@2": 4 / 5,
        }
    )


def test_equal_scores_find_nothing() -> None:
    assert recalls(retrieval_ranks(np.zeros((20, 20)), range(20))) == {
        f"{what} retrieval R@{k}": 0.0 for what in ("text", "image") for k in (1, 5, 10)
    }


@pytest.mark.parametrize(
    ("scores", "owners", "message"),
    [
        ([[1.0, 2.0]], [0], r"expected shape \(images, captions\)"),
        ([1.0, 2.0], [0, 1], r"expected shape \(images, captions\)"),
        ([[1.0, float("nan")]], [0, 0], "a score is NaN"),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 0], "expected a caption for every image from 0 to 1"),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 2], "expected a caption for every image from 0 to 1"),
    ],
)
def test_tables_that_cannot_be_ranked(scores, owners, message) -> None:
    with pytest.raises(DataError, match=message):
        retrieval_ranks(scores, owners)


def test_a_tie_with_the_same_words_is_no_error() -> None:
    """Two images have one caption: a perfect model cannot tell its copies apart. The papers count them as wrong."""
    scores, texts = [[9, 9, 1], [8, 8, 1], [1, 1, 9]], ["a dog on the sand", "A dog on the sand.", "a red kite"]
    content, papers = retrieval_ranks(scores, [0, 1, 2], texts), retrieval_ranks(scores, [0, 1, 2])
    assert recalls(content, at=(1,)) == {"text retrieval R@1": 1, "image retrieval R@1": 1}
    assert recalls(papers, at=(1,)) == pytest.approx({"text retrieval R@1": 1 / 3, "image retrieval R@1": 2 / 3})
    wrong = retrieval_ranks([[9, 9, 10], [8, 8, 1], [1, 1, 9]], [0, 1, 2], texts)
    assert (wrong.of_captions.tolist(), wrong.of_pictures.tolist()) == ([1, 0, 0], [0, 0, 1])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a dog, running!", "A dog running", True), ("a dog - a cat", "a dog a cat", True),
        ("party 🎂!", "Party 🎂", True),
        ("party 🎂", "party 🚗", False), ("5 - 3", "5 3", False), ("🎂", "🚗", False), ("1 : 5", "1 5", False),
        ("€5", "$5", False), ("❤\ufe0f", "❤", True), ("אבא\u200f", "אבא", True),
    ],
)  # fmt: skip
def test_texts_are_the_same_by_words_emoji_and_signs_between_numbers(one: str, other: str, same: bool) -> None:
    groups = same_texts([one, other]).tolist()
    assert groups == ([0, 0] if same else [0, 1])
