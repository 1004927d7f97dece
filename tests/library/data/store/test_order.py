import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.store.order import Order


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 5))
def test_an_epoch_gives_each_item_at_most_once(items: int, batch_size: int, seed: int) -> None:
    order = Order(np.arange(items) % 7, batch_size, seed)
    seen = np.concatenate([order.batch(step) for step in range(order.steps_per_epoch)])
    assert len(set(seen.tolist())) == len(seen)
    assert items - len(seen) < min(batch_size, items)


def test_the_order_is_a_function_of_seed_and_step_alone() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 1000)
    one, other = Order(lengths, 16, 3), Order(lengths, 16, 3)
    backwards = [other.batch(step).tolist() for step in reversed(range(200))]
    assert [one.batch(step).tolist() for step in range(200)] == backwards[::-1]
    assert one.batch(0).tolist() != Order(lengths, 16, 4).batch(0).tolist()


def test_epochs_differ() -> None:
    order = Order(np.ones(64, dtype=int), 8, 0)
    first = np.concatenate([order.batch(step) for step in range(8)])
    second = np.concatenate([order.batch(step) for step in range(8, 16)])
    assert first.tolist() != second.tolist()
    assert sorted(first) == sorted(second)


def test_batches_hold_items_of_like_length() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 5000)
    order = Order(lengths, 32, 0)
    batches = [lengths[order.batch(step)] for step in range(order.steps_per_epoch)]
    fill = sum(b.sum() for b in batches) / sum(b.max() * len(b) for b in batches)
    assert fill > 0.9
    means = [b.mean() for b in batches]
    assert means != sorted(means, reverse=True), "batches come longest first: the epoch is not mixed"
