"""Shards as the rows of a Daft plan: a batch UDF of batch size 1 gets a shard's name and returns its counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from diptych.engine import Counts, Work
from diptych.engine.outcome import Outcome, counts_of, outcome_of
from diptych.extras import wanted


def run_on_daft(work: Work, names: Sequence[str], workers: int) -> Iterator[Counts]:
    """On Daft's native runner, in `workers` processes. The counts come when all is done, in the order of the names."""
    with wanted("--engine daft", "mine"):
        import daft

    @daft.cls(max_concurrency=workers, use_process=workers > 1)
    class OneShard:
        """A class, so that each of its processes keeps what it has loaded."""

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)
        def made(self, name: daft.Series) -> list[str]:
            return [json.dumps(asdict(outcome_of(work, one))) for one in name.to_pylist()]

    shards: Any = OneShard()
    rows = daft.from_pydict({"number": list(range(len(names))), "name": list(names)})
    plan = rows.into_batches(1).select(daft.col("number"), shards.made(daft.col("name")).alias("told"))
    results = plan.to_pydict()
    for _, text in sorted(zip(results["number"], results["told"], strict=True)):
        yield counts_of(Outcome(**json.loads(text)))
