"""Shards as the rows of a Daft plan: a batch UDF of batch size 1 gets a shard's name and returns its counts."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from diptych.runtime.engine.outcome import Counts, Outcome, Work, counts_of, outcome_of
from diptych.runtime.extras import requires_extra


def run_on_daft(work: Work, names: Sequence[str], workers: int) -> Iterator[Counts]:
    """On Daft's native runner, in `workers` processes. The counts come when all is done, in the order of the names.

    One worker is this process, shard by shard: Daft takes seconds to start another, and does for each plan.
    """
    with requires_extra("--engine daft", "mine"):
        import daft

    # A number of them is a number of processes to Daft, even where it is 1 and `use_process` is False.
    placed: dict[str, Any] = (
        {"max_concurrency": workers, "use_process": True} if workers > 1 else {"use_process": False}
    )
    size = 1 if workers > 1 else len(names)  # smaller batches of one process go to its threads

    @daft.cls(**placed)
    class OneShard:
        """A class, so that each of its processes keeps what it has loaded."""

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=size)
        def made(self, name: daft.Series) -> list[str]:
            return [json.dumps(asdict(outcome_of(work, one))) for one in name.to_pylist()]

    shards: Any = OneShard()
    rows = daft.from_pydict({"number": list(range(len(names))), "name": list(names)})
    plan = rows.into_batches(size).select(daft.col("number"), shards.made(daft.col("name")).alias("told"))
    results = plan.to_pydict()
    for _, text in sorted(zip(results["number"], results["told"], strict=True)):
        yield counts_of(Outcome(**json.loads(text)))
