"""Shared code of benchmarks of training steps: timing, Hugging Face's BERT of the same size, and matrix products
alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from diptych.core import Regions
from diptych.training import OptimizerConfig
from diptych.training.optimizer import build_optimizer, clip

Step = Callable[[], object]
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}
WARM = 3  # rounds until a process has allocated its memory
Made = TypeVar("Made")
ADAMW = OptimizerConfig(kind="adamw", lr=1e-5, weight_decay=0.01)


def seconds(run: Step) -> float:
    return timed(run)[0]


def timed(run: Callable[[], Made]) -> tuple[float, Made]:
    """Return the seconds that `run` took, and its result."""
    began = time.perf_counter()
    made = run()
    return time.perf_counter() - began, made


class Apart:
    """A step that runs in a separate process, with the default memory settings of its library. `keep_freed_memory` in
    this process does not affect it."""

    def __init__(self, make: Callable[..., Step], *given: Any, **named: Any) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        what = (theirs, make, given, named, torch.get_num_threads())
        context.Process(target=_step_when_asked, args=what, daemon=True).start()

    def __call__(self) -> float:
        """Run the step in its process and return the CPU seconds that it took."""
        self.pipe.send(None)
        took: float = self.pipe.recv()
        return took


def _step_when_asked(pipe: Connection, make: Callable[..., Step], given: Any, named: Any, threads: int) -> None:
    torch.set_num_threads(threads)
    step = make(*given, **named)
    with suppress(EOFError):  # the parent process has ended
        while True:
            pipe.recv()
            pipe.send(cpu_seconds(step))


def cpu_seconds(run: Step) -> float:
    """Return the CPU seconds of a step in all threads. With OMP_WAIT_POLICY=passive a waiting thread takes no CPU time,
    so other processes on the machine change the result little."""
    if isinstance(run, Apart):
        return run()
    began = time.process_time()
    run()
    return time.process_time() - began


def in_turn(
    steps: Mapping[str, Step], rounds: int, measured: Callable[[Step], float] = cpu_seconds
) -> dict[str, list[float]]:
    """Return what each step took in each round, after `WARM` calls that are not counted. In a round all steps run in
    turn, so steps that are compared run under the same conditions."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for step in [*steps.values()] * WARM:
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            taken[name].append(measured(step))
    return taken


def median_ratio(theirs: Iterable[float], ours: Iterable[float]) -> float:
    """Return the median of the ratios theirs / ours, round by round."""
    return round(median(one / other for one, other in zip(theirs, ours, strict=True)), 2)


def stepping(
    module: nn.Module, loss: Callable[[], torch.Tensor], recipe: OptimizerConfig | None = None
) -> Callable[[], None]:
    """Return a function for forward, backward and optimizer. With `recipe` it clips gradients as the trainer does;
    without, the optimizer is plain AdamW."""
    module.train()
    optimizer = build_optimizer(module, recipe or ADAMW, torch.device("cpu"))

    def step() -> None:
        loss().backward()
        if recipe is not None:
            clip(module.parameters(), recipe)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def bert_step(
    words: int, pictures: int, positions: int, hidden: int, classes: int = 0, regions: int = 0, **shape: int
) -> Callable[[], None]:
    """Return a step of Hugging Face's BERT in fp32 on `positions` positions, `hidden` of which pass the word head.

    With `classes`, the states of `regions` positions pass a second head, of two layers as wide as the model.
    """
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=words, **shape)
    bert = BertForMaskedLM(config).train()
    width = config.hidden_size
    told = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, classes)) if classes else None
    ids = torch.randint(5, words, (pictures, positions))
    wanted = torch.randint(0, classes, (regions,)) if classes else None
    asked = (slice(None), slice(positions - hidden, None))

    def loss() -> torch.Tensor:
        states = bert.bert(ids).last_hidden_state
        total = F.cross_entropy(bert.cls(states[asked]).flatten(0, 1), ids[asked].flatten())
        if told is not None and wanted is not None:
            total = total + F.cross_entropy(told(states.flatten(0, 1)[:regions]), wanted)
        return total

    return stepping(nn.ModuleList([bert, *([] if told is None else [told])]), loss)


class Products(TorchDispatchMode):
    """Counts the matrix products that run inside, forward and backward, by operation, shapes, layout and type."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[tuple[Any, tuple[Layout, ...]]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in PRODUCTS:
            operands = tuple((tuple(t.shape), t.stride(), t.dtype) for t in args if isinstance(t, torch.Tensor))
            self.counted[func, operands] += 1
        return func(*args, **(kwargs or {}))


def product_seconds(step: Step) -> float:
    """Return the CPU seconds of all matrix products of a call of `step`. Each product is timed alone, with its own
    shape, layout and type."""
    with Products() as products:
        step()
    taken = 0.0
    for (func, operands), count in products.counted.items():
        given = [torch.empty_strided(shape, stride, dtype=dtype).uniform_() for shape, stride, dtype in operands]
        func(*given)
        taken += count * median(cpu_seconds(lambda func=func, given=given: func(*given)) for _ in range(3))
    return taken


def random_regions(count: int, classes: int, features: int = 0, pixels: tuple[int, int] | None = None) -> Regions:
    """Return random regions with `features` numbers each, or with an image of `pixels` (height, width)."""
    corner = torch.rand(count, 2) / 2
    return Regions(
        boxes=torch.cat([corner, corner + 0.4], 1),
        scores=torch.rand(count),
        size=(640, 480),
        classes=torch.rand(count, classes).softmax(-1),
        features=torch.rand(count, features) if features else None,
        pixels=torch.rand(3, *pixels) if pixels is not None else None,
    )
