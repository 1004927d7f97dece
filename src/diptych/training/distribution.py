"""One forward pass of an update as a module, and how processes share it (DDP, FSDP2).

DDP and FSDP wrap `Pass`, not the model: its forward advances the update's generator by one. Wrapping the model fails if
objectives call heads outside the model's forward, or if a step leaves heads unused.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from diptych.core import Losses
from diptych.runtime.devices import autocast
from diptych.training.ranks import Ranks
from diptych.training.sharding import is_sharded, plain

COMPILER = "inductor"
Reached = tuple[Tensor | None, Losses]  # the weighted sum for backward, and each objective's sum, detached


class Pass(nn.Module):
    """The next pass of an update. `scales` has the objectives with targets in this micro-batch."""

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        super().__init__()
        self.model, self.ranks, self.precision = model, ranks, precision

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        with autocast(self.ranks.device, self.precision):  # forward only: backward uses the types of forward
            losses = next(passes, None)
        if losses is None:
            return None
        # An objective without targets here is left out of the graph: its sum may be the mean of nothing.
        terms = [loss * scales[name] for name, loss in losses.items() if name in scales]
        total = torch.stack([t.float() for t in terms]).sum() if terms else None
        return total, {name: loss.detach() for name, loss in losses.items()}


class PassRunner:
    """Runs passes in one process. Base class of DDP (`Replicated`) and FSDP2 (`Sharded`)."""

    def __init__(self, wrapped: nn.Module, pass_: Pass) -> None:
        self.wrapped, self.pass_ = wrapped, pass_

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        """Forward and backward of the next pass: each objective's sum, or None if the update has no more passes.

        `last` marks the last micro-batch of a step, after which gradients are reduced over ranks.
        """
        reached: Reached | None = self.wrapped(passes, scales)
        if reached is None:
            return None
        total, sums = reached
        if total is not None and total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
        return sums

    def settle(self) -> None:
        """Called after the last backward of a pass, before the optimizer."""

    def unsharded(self) -> AbstractContextManager[None]:
        """A context in which the model itself can be called, as validation does."""
        return nullcontext()


class Replicated(PassRunner):
    """DDP. Its flag for unused parameters also covers heads without targets on this rank."""

    def __init__(self, joined: Pass) -> None:
        # 1 x 1 convolutions in channels_last have other strides for the same memory layout.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        # Gradients are views of the buckets that are reduced, which saves a copy.
        self.replicas = DistributedDataParallel(joined, find_unused_parameters=True, gradient_as_bucket_view=True)
        super().__init__(self.replicas, joined)

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        with nullcontext() if last else self.replicas.no_sync():
            return super().run(passes, scales, last)


class Sharded(PassRunner):
    """FSDP2. Members of a ModuleList (a transformer's layers) are sharded one by one, the rest together."""

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.ranks = ranks
        for tensor in model.state_dict().values():
            distributed.broadcast(tensor, 0)  # else each rank would keep a shard of its own initial weights
        layers = {id(m): m for part in model.modules() if isinstance(part, nn.ModuleList) for m in part}
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        for layer in layers.values():
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        self.touching = _TouchingPass(model, ranks, precision)
        self.root = fully_shard(self.touching, mesh=mesh)  # the same module, which now gathers its weights
        super().__init__(self.touching, self.touching)

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        self.root.set_requires_gradient_sync(last)
        sums = super().run(passes, scales, last)
        if sums is None:
            self.root.reshard()  # no backward does it, and the weights may change before the next forward
        return sums

    def settle(self) -> None:
        """Remove the zero gradients of parameters that no rank used, as DDP and one process have none."""
        names = sorted(self.touching.touched | self.touching.used)
        used = self.ranks.sum([float(name in self.touching.used) for name in names])
        parameters = dict(self.touching.named_parameters())
        for name, times in zip(names, used, strict=True):
            if not times:
                parameters[name].grad = None
        self.touching.touched.clear()
        self.touching.used.clear()

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()


class _JoinedPass(Pass):
    """A pass that always has a tensor for backward, since every rank must join the reduction."""

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        reached = super().forward(passes, scales)
        if reached is None or (reached[0] is not None and reached[0].requires_grad):
            return reached
        return _nothing_of(next(p for p in self.parameters() if p.requires_grad)), reached[1]


class _TouchingPass(Pass):
    """A pass in which every parameter of the root group has a gradient.

    FSDP2 leaves parameters without a gradient out of the reduction. If ranks left out different ones, gradients of
    different parameters would be added.
    """

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
                continue  # all of a layer with its own group runs, or nothing of it
            if id(parameter) in leaves:
                self.used.add(name)
            else:
                self.touched.add(name)
                nothing = _nothing_of(parameter)
                total = nothing if total is None else total + nothing
        return total, reached[1]


def _nothing_of(parameter: Tensor) -> Tensor:
    """Zero with a gradient of zeros: the sum of no elements, as 0 times an infinite weight would be NaN."""
    return parameter.flatten()[:0].sum().float()


def _leaves(total: Tensor | None) -> set[int]:
    """The ids of the parameters that backward would reach."""
    reached: set[int] = set()
    seen = set()
    waiting = [total.grad_fn] if total is not None and total.grad_fn is not None else []
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            reached.add(id(node.variable))
        waiting += [following for following, _ in node.next_functions if following is not None]
    return reached


def compile_layers(model: nn.Module) -> None:
    """Compile each layer by itself: one program serves all layers of a stack, for all lengths."""
    for part in model.modules():
        if isinstance(part, nn.ModuleList):
            for layer in part:
                layer.compile(backend=COMPILER)


def distribute(model: nn.Module, ranks: Ranks, kind: str, precision: str, compiled: bool = False) -> PassRunner:
    """Prepare a model for one process, DDP (`kind="ddp"`) or FSDP2 ("fsdp")."""
    if ranks.device.type == "cuda" and precision == "bf16":
        torch.set_float32_matmul_precision("high")  # TF32 for the products that bf16 leaves in fp32
    if compiled:
        compile_layers(model)
    if ranks.world == 1:
        alone = Pass(model, ranks, precision)
        return PassRunner(alone, alone)
    if kind == "fsdp":
        return Sharded(model, ranks, precision)
    return Replicated(_JoinedPass(model, ranks, precision))


def sync_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Copy rank 0's buffers (running means of batch norms) to all ranks, as a resume from its checkpoint would."""
    if ranks.world > 1:
        for buffer in model.buffers():
            distributed.broadcast(buffer, 0)


def gather(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Gather whole tensors on rank 0's CPU; other ranks get nothing. Every rank must call it."""
    gathered = {}
    for name, tensor in tensors.items():
        full = plain(tensor.detach())
        if ranks.first:
            gathered[name] = full.cpu().contiguous()
    return gathered
