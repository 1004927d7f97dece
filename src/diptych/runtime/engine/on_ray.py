"""Process shards on a Ray cluster: the cluster at RAY_ADDRESS, or one that is started on this machine for this work."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from diptych.runtime.engine.outcome import Counts, Outcome, Work, counts_of, outcome_of
from diptych.runtime.errors import DiptychError
from diptych.runtime.extras import requires_extra

STARTS = 3  # starting a cluster on this machine is tried at most this number of times
AGAIN = 3  # if the worker process of a shard dies, Ray processes the shard again, at most this number of times


def run_on_ray(work: Work, names: Sequence[str], workers: int) -> Iterator[Counts]:
    """Yield the counts of each shard, in the order of `names`.

    Up to 2 x `workers` shards are submitted at a time, so that no worker waits for this process. A shard uses one core.
    """
    with requires_extra("--engine ray", "ray"):
        import ray
    with cluster(workers):
        task = ray.remote(num_cpus=1, max_retries=AGAIN)(outcome_of)
        placed = ray.put(work)
        left, running, done = list(enumerate(names))[::-1], dict[Any, int](), dict[int, Outcome]()
        due = 0
        while left or running or done:
            while left and len(running) < 2 * workers:
                number, name = left.pop()
                running[task.remote(placed, name)] = number
            if running and due not in done:
                (ready,), _ = ray.wait(list(running), num_returns=1)
                try:
                    done[running.pop(ready)] = ray.get(ready)
                except ray.exceptions.RayError as error:
                    why = str(error).splitlines()[-1]
                    raise DiptychError(f"a shard failed on Ray: {why}; repeat the command to resume") from error
            while due in done:
                yield counts_of(done.pop(due))
                due += 1


@contextmanager
def cluster(workers: int) -> Iterator[None]:
    """Join the cluster at RAY_ADDRESS, or start one, for a `with` block.

    Raises DiptychError if its workers have other versions of Diptych or Python.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    _begin(ray, address, workers)
    try:
        if address:
            _same_versions(ray)
        yield
    finally:
        ray.shutdown()


def _begin(ray: Any, address: str | None, workers: int) -> None:
    """Join or start a cluster. Ray is started again if a busy machine exceeds its limit of 30 s."""
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    own = {} if address else {"num_cpus": workers, "include_dashboard": False}
    for left in reversed(range(1 if address else STARTS)):
        try:
            ray.init(address or "local", **quietly, **own)
            return
        except Exception as error:  # Ray raises plain Exception, not a subclass
            ray.shutdown()
            if not left:
                here = f"cannot start Ray on this machine: {error}; repeat the command, or pass --engine local"
                there = f"no Ray cluster at {address}: {error}; unset RAY_ADDRESS to start one on this machine"
                raise DiptychError(there if address else here) from error


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all machines."""
    return {"python": ".".join(map(str, sys.version_info[:2])), "diptych": version("diptych")}


def _same_versions(ray: Any) -> None:
    """Raise DiptychError if a machine of the cluster has different versions."""
    here, ask = versions(), ray.remote(num_cpus=0)(versions)
    alive = [node for node in ray.nodes() if node["Alive"]]
    there = [ask.options(label_selector={"ray.io/node-id": node["NodeID"]}).remote() for node in alive]
    for node, theirs in zip(alive, ray.get(there), strict=True):
        if theirs != here:
            host = node["NodeManagerHostname"]
            raise DiptychError(f"the Ray workers on {host} have {theirs}, expected {here}; install the expected ones")
