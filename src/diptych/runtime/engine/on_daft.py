"""Run shards as the rows of a Daft plan: a batch UDF of batch size 1 gets a name and returns counts as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from diptych.runtime.engine.outcome import Counts, Outcome, Work, counts_of, outcome_of
from diptych.runtime.extras import requires_extra


def run_on_daft(work: Work, names: Sequence[str], workers: int) -> Iterator[Counts]:
    """Run on Daft's native runner in `workers` processes. All counts come at the end, in the order of the names.

    One worker is this process, shard by shard: Daft takes seconds to start another, for each plan.
    """
    with requires_extra("--engine daft", "mine"):
        import daft

    # Daft starts `max_concurrency` processes even if it is 1 and `use_process` is False.
    several: dict[str, Any] = {"max_concurrency": workers} if workers > 1 else {}
    size = 1 if workers > 1 else len(names)  # smaller batches of one process go to its threads

    @daft.cls(use_process=workers > 1, **several)
    class OneShard:
        """A class, so that its processes keep what they have loaded."""

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=size)
        def made(self, name: daft.Series) -> list[str]:
            return [json.dumps(asdict(outcome_of(work, one))) for one in name.to_pylist()]

    shards: Any = OneShard()
    rows = daft.from_pydict({"number": list(range(len(names))), "name": list(names)})
    plan = rows.into_batches(size).select(daft.col("number"), shards.made(daft.col("name")).alias("outcome"))
    results = plan.to_pydict()
    for _, text in sorted(zip(results["number"], results["outcome"], strict=True)):
        yield counts_of(Outcome(**json.loads(text)))
