"""What `/metrics` tells, in the text format of Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from diptych.serving.service.worker import Timing

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Measures:
    """One registry a service, so that several can live in one process."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "diptych_requests", "Requests by task and status.", ("task", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "diptych_request_seconds",
            "From the last byte of a request to its answer.",
            ("task",),
            registry=self.registry,
            buckets=SECONDS,
        )
        self.stages = Histogram(
            "diptych_stage_seconds",
            "Of answered requests: in the queue, finding regions, in the model.",
            ("stage",),
            registry=self.registry,
            buckets=SECONDS,
        )
        self.batches = Histogram(
            "diptych_batch_requests",
            "Requests that shared a pass.",
            registry=self.registry,
            buckets=(1, 2, 4, 8, 16, 32),
        )
        Gauge("diptych_queue_requests", "Requests that wait.", registry=self.registry).set_function(waiting)

    def answered(self, task: str, status: int, seconds: float, timing: Timing | None = None) -> None:
        self.requests.labels(task, str(status)).inc()
        self.seconds.labels(task).observe(seconds)
        if timing is not None:
            for stage in ("queue", "extraction", "model"):
                self.stages.labels(stage).observe(getattr(timing, stage) / 1000)

    def text(self) -> bytes:
        return generate_latest(self.registry)
