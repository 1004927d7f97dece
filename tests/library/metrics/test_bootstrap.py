import numpy as np
import pytest

from diptych.metrics.auroc import auroc
from diptych.metrics.bleu import bleu_scores
from diptych.metrics.bootstrap import bootstrap_interval, paired_interval, resampled_interval, rows_by_picture
from diptych.metrics.captions import caption_items
from diptych.runtime.errors import DataError


def test_interval_of_a_mean_is_the_textbook_one() -> None:
    scores = np.random.default_rng(1).normal(0.5, 0.2, size=400)
    interval = bootstrap_interval(rows_by_picture(scores), draws=2000)
    error = scores.std() / 20
    assert interval.value == pytest.approx(scores.mean())
    assert interval.low == pytest.approx(scores.mean() - 1.96 * error, abs=0.15 * error)
    assert interval.high == pytest.approx(scores.mean() + 1.96 * error, abs=0.15 * error)


def test_equal_seeds_give_equal_intervals_and_blocks_change_nothing(monkeypatch) -> None:
    rows = rows_by_picture(np.arange(50.0))
    whole = bootstrap_interval(rows, draws=100, seed=3)
    assert whole == bootstrap_interval(rows, draws=100, seed=3) != bootstrap_interval(rows, draws=100, seed=4)
    monkeypatch.setattr("diptych.metrics.bootstrap._AT_ONCE", 50 * 7)
    assert bootstrap_interval(rows, draws=100, seed=3) == whole


def test_questions_of_a_picture_are_drawn_together() -> None:
    """Ten equal answers to questions of one picture are worth one, so the interval is wider."""
    scores = np.repeat(np.random.default_rng(0).integers(0, 2, size=40).astype(float), 10)
    pictures = [f"picture {n // 10}" for n in range(400)]
    together, alone = bootstrap_interval(rows_by_picture(scores, pictures)), bootstrap_interval(rows_by_picture(scores))
    assert together.value == alone.value == scores.mean()
    assert together.high - together.low > 2.5 * (alone.high - alone.low)


def test_resampled_items_of_a_mean_give_the_interval_of_its_sums() -> None:
    scores = np.random.default_rng(0).uniform(size=60)
    pictures = [f"picture {n % 25}" for n in range(60)]
    resampled = resampled_interval(lambda rows: float(scores[rows].mean()), pictures)
    summed = bootstrap_interval(rows_by_picture(scores, pictures))
    assert (resampled.value, resampled.low, resampled.high) == pytest.approx((summed.value, summed.low, summed.high))


def test_draws_without_a_score_are_left_out() -> None:
    """Two images of two classes: half of the draws have one class."""
    right = np.array([True, False])
    interval = resampled_interval(lambda rows: auroc(np.array([0.9, 0.1])[rows], right[rows]), ["a", "b"])
    assert (interval.value, interval.low, interval.high) == (1, 1, 1)


def test_a_pair_shares_its_pictures() -> None:
    """A constant lead is sure, however much pictures differ."""
    hard = np.random.default_rng(0).uniform(size=100)
    interval = paired_interval(rows_by_picture(hard + 0.01), rows_by_picture(hard))
    assert interval.low == pytest.approx(0.01)
    assert interval.high == pytest.approx(0.01)
    same = paired_interval(rows_by_picture(hard), rows_by_picture(hard))
    assert (same.low, same.value, same.high) == (0, 0, 0)


def test_bleu_from_its_counts() -> None:
    references = {str(n): [f"a dog number {n} runs on the grass"] for n in range(30)}
    predictions = {
        key: "a dog runs on the grass" if int(key) % 3 else captions[0] for key, captions in references.items()
    }
    items = caption_items(predictions, references)
    interval = bootstrap_interval(items.bleu, lambda sums: bleu_scores(sums)[..., 3], draws=200)
    assert interval.low < interval.value < interval.high
    assert interval.value == items.scores()["BLEU-4"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval(np.zeros((0, 2))), "0 images"),
        (lambda: bootstrap_interval(np.ones((3, 2)), draws=0), "0 draws"),
        (lambda: bootstrap_interval(np.ones((3, 2)), level=95.0), "such as 0.95"),
        (lambda: rows_by_picture([1.0, 2.0], ["a"]), "pass one image for each score"),
        (lambda: paired_interval(np.ones((3, 2)), np.ones((4, 2))), "the same images"),
    ],
)
def test_what_cannot_be_drawn(call, message) -> None:
    with pytest.raises(DataError, match=message):
        call()
