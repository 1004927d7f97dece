"""One forward pass of an update as a module, and how processes share it (DDP, FSDP2).

What is wrapped is not the model but `Pass`, whose forward advances the update's generator by one. A bare wrap of the
model fails where objectives call heads outside the model's forward, and where a step leaves heads unused.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from diptych.core import Losses
from diptych.runtime.devices import autocast
from diptych.training.ranks import Ranks
from diptych.training.sharding import is_sharded, plain

COMPILER = "inductor"
Reached = tuple[Tensor | None, Losses]  # what to call backward on, and each objective's sum, detached


class Pass(nn.Module):
    """The next pass of an update. `scales` has the objectives that this part predicts something for."""

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        super().__init__()
        self.model, self.ranks, self.precision = model, ranks, precision

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        with autocast(self.ranks.device, self.precision):  # forward only: backward takes the types it finds
            losses = next(passes, None)
        if losses is None:
            return None
        # An objective with nothing to predict here is left out of the graph: its sum may be the mean of nothing.
        terms = [loss * scales[name] for name, loss in losses.items() if name in scales]
        total = torch.stack([t.float() for t in terms]).sum() if terms else None
        return total, {name: loss.detach() for name, loss in losses.items()}


class Distributed(Protocol):
    """The ways to run a pass: alone, DDP, FSDP2."""

    @property
    def pass_(self) -> Pass: ...

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        """Forward and backward of the next pass: each objective's sum, or None where the update has no more passes.
        `last` marks the last micro-batch of a step, after which gradients meet."""
        ...

    def settle(self) -> None:
        """After the last backward of a pass, before the optimizer."""
        ...

    def unsharded(self) -> AbstractContextManager[None]:
        """While it lasts the model itself can be called, as validation does."""
        ...


class Alone:
    def __init__(self, wrapped: nn.Module, pass_: Pass) -> None:
        self.wrapped, self.pass_ = wrapped, pass_

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        return _backward(self.wrapped(passes, scales))

    def settle(self) -> None:
        pass

    def unsharded(self) -> AbstractContextManager[None]:
        return nullcontext()


class Replicated(Alone):
    """DDP. Its flag for unused parameters also covers heads that this rank has nothing to predict with."""

    def __init__(self, joined: Pass) -> None:
        # 1 x 1 convolutions in channels_last: their strides differ in name alone.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        # Gradients lie where they are exchanged.
        self.replicas = DistributedDataParallel(joined, find_unused_parameters=True, gradient_as_bucket_view=True)
        super().__init__(self.replicas, joined)

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        if last:
            return _backward(self.wrapped(passes, scales))
        with self.replicas.no_sync():
            return _backward(self.wrapped(passes, scales))


class Sharded:
    """FSDP2. Members of a ModuleList (a transformer's layers) are sharded one by one, the rest together."""

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.ranks = ranks
        for tensor in model.state_dict().values():
            distributed.broadcast(tensor, 0)  # or each rank would keep a slice of its own initial weights
        layers = {id(m): m for part in model.modules() if isinstance(part, nn.ModuleList) for m in part}
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        for layer in layers.values():
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        self.pass_ = _TouchingPass(model, ranks, precision)
        self.root = fully_shard(self.pass_, mesh=mesh)  # the same module, which has learnt to gather itself

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        self.root.set_requires_gradient_sync(last)
        sums = _backward(self.pass_(passes, scales))
        if sums is None:
            self.root.reshard()  # no backward came to do it, and the weights may change before the next forward
        return sums

    def settle(self) -> None:
        """Takes the zero gradients away again from parameters that no rank used, as DDP and one process have none."""
        names = sorted(self.pass_.touched | self.pass_.used)
        used = self.ranks.sum([float(name in self.pass_.used) for name in names])
        parameters = dict(self.pass_.named_parameters())
        for name, times in zip(names, used, strict=True):
            if not times:
                parameters[name].grad = None
        self.pass_.touched.clear()
        self.pass_.used.clear()

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()


class _JoinedPass(Pass):
    """A pass that always has something to call backward on, since every rank must join the reduction."""

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        reached = super().forward(passes, scales)
        if reached is None or (reached[0] is not None and reached[0].requires_grad):
            return reached
        first = next(p for p in self.parameters() if p.requires_grad)
        return _nothing_of(first), reached[1]


class _TouchingPass(Pass):
    """A pass in which every parameter of the root group takes part: FSDP2 leaves parameters without a gradient out of
    the reduction, and ranks that leave out different ones would add up numbers of different parameters."""

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        super().__init__(model, ranks, precision)
        self.touched: set[str] = set()
        self.used: set[str] = set()

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        reached = super().forward(passes, scales)
        if reached is None:
            return None
        total = reached[0]
        leaves = _leaves(total)
        for name, parameter in self.named_parameters():
            if is_sharded(parameter) or not parameter.requires_grad:
                continue  # of a layer with a group of its own: all of it runs or none
            if id(parameter) in leaves:
                self.used.add(name)
            else:
                self.touched.add(name)
                nothing = _nothing_of(parameter)
                total = nothing if total is None else total + nothing
        return total, reached[1]


def _nothing_of(parameter: Tensor) -> Tensor:
    """Zero, with a gradient of zeros: the sum of no elements, so that an infinite weight does not make it NaN."""
    return parameter.flatten()[:0].sum().float()


def _leaves(total: Tensor | None) -> set[int]:
    """The parameters that backward would reach, by id."""
    found: set[int] = set()
    seen = set()
    waiting = [total.grad_fn] if total is not None and total.grad_fn is not None else []
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [following for following, _ in node.next_functions if following is not None]
    return found


def _backward(reached: Reached | None) -> Losses | None:
    if reached is None:
        return None
    total, sums = reached
    if total is not None and total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    return sums


def compile_layers(model: nn.Module) -> None:
    """Each layer by itself: one program serves all of a stack, whatever the lengths."""
    for part in model.modules():
        if isinstance(part, nn.ModuleList):
            for layer in part:
                layer.compile(backend=COMPILER)


def distribute(model: nn.Module, ranks: Ranks, kind: str, precision: str, compiled: bool = False) -> Distributed:
    if ranks.device.type == "cuda" and precision == "bf16":
        torch.set_float32_matmul_precision("high")  # TF32 for the products that bf16 leaves in fp32
    if compiled:
        compile_layers(model)
    if ranks.world == 1:
        alone = Pass(model, ranks, precision)
        return Alone(alone, alone)
    if kind == "fsdp":
        return Sharded(model, ranks, precision)
    return Replicated(_JoinedPass(model, ranks, precision))


def sync_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Rank 0's buffers for all (running means of batch norms), as they would be after a resume from its checkpoint."""
    if ranks.world > 1:
        for buffer in model.buffers():
            distributed.broadcast(buffer, 0)


def gather(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Whole tensors on rank 0's CPU, nothing on the others. Every rank must call it."""
    gathered = {}
    for name, tensor in tensors.items():
        full = plain(tensor.detach())
        if ranks.first:
            gathered[name] = full.cpu().contiguous()
    return gathered
