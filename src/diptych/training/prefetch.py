"""Batches made ahead of time by threads. Each is a pure function of its place, so nothing here needs saving."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

Place = TypeVar("Place")
Made = TypeVar("Made")


@contextmanager
def prefetched(
    make: Callable[[Place], Made], places: Iterable[Place], threads: int, waiting: int
) -> Iterator[Iterator[Made]]:
    """`make(place)` for each place in order; at most `waiting` are under way or ready.

    Without threads each is made when it is asked for.
    """
    if threads == 0:
        yield map(make, places)
        return
    left = iter(places)
    with ThreadPoolExecutor(threads, thread_name_prefix="batches") as pool:
        queue: deque[Future[Made]] = deque(pool.submit(make, place) for place in islice(left, waiting))

        def results() -> Iterator[Made]:
            while queue:
                made = queue.popleft().result()
                queue.extend(pool.submit(make, place) for place in islice(left, 1))
                yield made

        try:
            yield results()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
