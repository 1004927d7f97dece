"""Apply a function to the names of shards: in processes of this machine, or on a Ray cluster.

The function writes its shard's result itself, completely or not at all, and returns its counts. The caller leaves out
shards that exist. So a kill costs only unfinished shards on every engine. Making a shard twice, as Ray does when a
worker dies, is harmless.
"""

import os
from collections.abc import Iterator, Sequence

from diptych.runtime.engine.outcome import Counts, Work
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.processes import LOADED_ONCE, map_in_processes

ENGINES = ("local", "ray")


def quiet() -> None:
    """Switch off the usage reports of Ray, and give each worker one BLAS thread.

    Ray's environments for `uv run` are off too: it would build one per worker from a copy of the working folder.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def run(
    work: Work, names: Sequence[str], engine: str = "local", workers: int = 1, loaded: Sequence[str] = LOADED_ONCE
) -> Iterator[Counts]:
    """Yield `work(name)` for each name, in their order. `work` must be picklable.

    `loaded` names the modules that local processes load only once. Errors of `work` are raised here; a DiptychError
    stays one.
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
