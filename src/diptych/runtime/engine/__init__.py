"""Apply a function to all shards of a data set, given by name: in processes on this machine, or on a Ray cluster.

The function writes the result of a shard, completely or not at all, and returns counts. When a command is repeated, the
caller leaves out shards whose result exists. So after a kill, only unfinished shards are processed again. Processing a
shard twice is harmless; Ray does so if a worker dies.
"""

import os
from collections.abc import Iterator, Sequence

from diptych.runtime.engine.outcome import Counts, Work
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.processes import map_in_processes

ENGINES = ("local", "ray")


def quiet() -> None:
    """Switch off Ray's usage reports, and give each worker one BLAS thread.

    Also switch off Ray's environments for `uv run`: Ray would build one per worker, from a copy of the working folder.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def run(
    work: Work, names: Sequence[str], engine: str = "local", workers: int = 1, loaded: Sequence[str] | None = None
) -> Iterator[Counts]:
    """Yield `work(name)` for each name, in the order of `names`. `work` must be picklable.

    `loaded`: modules that the local processes load only once, together; see `map_in_processes`. Errors of `work` are
    raised here; a DiptychError keeps its class.
    """
    quiet()
    if not names:
        return
    match engine:
        case "local":
            yield from map_in_processes(work, names, min(workers, len(names)), loaded)
        case "ray":
            from diptych.runtime.engine.on_ray import run_on_ray

            yield from run_on_ray(work, names, workers)
        case _:
            raise RecipeError(f"no engine {engine!r}; {nearest(engine, ENGINES)}")
