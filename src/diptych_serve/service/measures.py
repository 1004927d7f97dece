"""Count requests and times for the route `/metrics`, in the text format of Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from diptych_serve.service.worker import Timing

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Measures:
    """The counters and histograms of a service.

    Each service has its own registry, so that a process can run several services.
    """

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        times = own | {"buckets": SECONDS}
        self.requests = Counter("diptych_requests", "Requests by task and status.", ("task", "status"), **own)
        about = "Time from the last byte of a request to its answer."
        self.seconds = Histogram("diptych_request_seconds", about, ("task",), **times)
        about = "Time of answered requests per stage: in the queue, detecting regions, in the model."
        self.stages = Histogram("diptych_stage_seconds", about, ("stage",), **times)
        self.batches = Histogram("diptych_batch_requests", "Requests per batch.", buckets=(1, 2, 4, 8, 16, 32), **own)
        Gauge("diptych_queue_requests", "Number of waiting requests.", **own).set_function(waiting)

    def answered(self, task: str, status: int, seconds: float, timing: Timing | None = None) -> None:
        """Count a request."""
        self.requests.labels(task, str(status)).inc()
        self.seconds.labels(task).observe(seconds)
        if timing is not None:
            for stage in ("queue", "extraction", "model"):
                self.stages.labels(stage).observe(getattr(timing, stage) / 1000)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
