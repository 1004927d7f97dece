"""A forward pass of an update as a module, which DDP or FSDP2 can wrap.

`Pass.forward` takes the next item of the update's generator of losses. DDP and FSDP wrap `Pass` instead of the model,
because objectives call heads outside the model's forward. Also, a step may leave heads unused.
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
Reached = tuple[Tensor | None, Losses]  # (weighted sum of the losses for backward, {objective: detached loss})


class Pass(nn.Module):
    """A module that runs the next pass of an update.

    `scales`: the factor of each objective that has targets in this micro-batch.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        super().__init__()
        self.model, self.ranks, self.precision = model, ranks, precision

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        with autocast(self.ranks.device, self.precision):  # the backward pass uses the same precision
            losses = next(passes, None)
        if losses is None:
            return None
        # A loss without targets in this micro-batch may be NaN (a mean over no values), so it is left out of the graph.
        terms = [loss * scales[name] for name, loss in losses.items() if name in scales]
        total = torch.stack([t.float() for t in terms]).sum() if terms else None
        return total, {name: loss.detach() for name, loss in losses.items()}


class PassRunner:
    """Runs passes in a single process. The subclasses `Replicated` (DDP) and `Sharded` (FSDP2) use several."""

    def __init__(self, wrapped: nn.Module, pass_: Pass) -> None:
        self.wrapped, self.pass_ = wrapped, pass_

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        """Run forward and backward of the next pass.

        Return the loss of each objective, or None if the update has no more passes.

        `last` is True for the last micro-batch of a step; gradients are then reduced over ranks.
        """
        reached: Reached | None = self.wrapped(passes, scales)
        if reached is None:
            return None
        total, sums = reached
        if total is not None and total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
        return sums

    def settle(self) -> None:
        """Finish the gradients of a pass. Called after the last backward pass, before the optimizer's step."""

    def unsharded(self) -> AbstractContextManager[None]:
        """Return a context in which the model can be called directly, such as in validation."""
        return nullcontext()


class Replicated(PassRunner):
    """DDP. `find_unused_parameters` is needed for heads that have no targets on a rank."""

    def __init__(self, joined: Pass) -> None:
        # The warning is harmless: in channels_last, 1 x 1 convolutions have different strides for the same memory
        # layout.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        # With gradient_as_bucket_view, DDP keeps no second copy of the gradients.
        self.replicas = DistributedDataParallel(joined, find_unused_parameters=True, gradient_as_bucket_view=True)
        super().__init__(self.replicas, joined)

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        with nullcontext() if last else self.replicas.no_sync():
            return super().run(passes, scales, last)


class Sharded(PassRunner):
    """FSDP2.

    Each member of a ModuleList, such as a transformer layer, is a separate FSDP group. All other weights form the root
    group.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, precision: str) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.ranks = ranks
        for tensor in model.state_dict().values():
            # All ranks must shard the same initial weights, so those of rank 0 are sent to all.
            distributed.broadcast(tensor, 0)
        layers = {id(m): m for part in model.modules() if isinstance(part, nn.ModuleList) for m in part}
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        for layer in layers.values():
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        self.touching = _TouchingPass(model, ranks, precision)
        self.root = fully_shard(self.touching, mesh=mesh)  # fully_shard changes the module in place
        super().__init__(self.touching, self.touching)

    def run(self, passes: Iterator[Losses], scales: Mapping[str, float], last: bool) -> Losses | None:
        self.root.set_requires_gradient_sync(last)
        sums = super().run(passes, scales, last)
        if sums is None:
            # FSDP reshards only after a backward pass. Without this call, the next step would use old weights.
            self.root.reshard()
        return sums

    def settle(self) -> None:
        """Remove the zero gradients of parameters that no rank used.

        With DDP or a single process, such parameters have no gradients either.
        """
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
    """A pass whose loss always has a backward pass, because every rank must take part in the gradient reduction."""

    def forward(self, passes: Iterator[Losses], scales: Mapping[str, float]) -> Reached | None:
        reached = super().forward(passes, scales)
        if reached is None or (reached[0] is not None and reached[0].requires_grad):
            return reached
        return _nothing_of(next(p for p in self.parameters() if p.requires_grad)), reached[1]


class _TouchingPass(Pass):
    """A pass in which every parameter of the root group gets a gradient, possibly zero.

    FSDP2 does not reduce parameters without a gradient. If ranks left out different parameters, it would add gradients
    of different parameters to each other.
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
                continue  # a sharded layer is used as a whole or not at all, so it needs no check
            if id(parameter) in leaves:
                self.used.add(name)
            else:
                self.touched.add(name)
                nothing = _nothing_of(parameter)
                total = nothing if total is None else total + nothing
        return total, reached[1]


def _nothing_of(parameter: Tensor) -> Tensor:
    """Return a zero whose gradient is zero. It is an empty sum, because 0 * infinity would be NaN."""
    return parameter.flatten()[:0].sum().float()


def _leaves(total: Tensor | None) -> set[int]:
    """Return the ids of the parameters that get a gradient in `total.backward()`."""
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
    """Compile each layer separately. All layers of a stack then share one compiled program."""
    for part in model.modules():
        if isinstance(part, nn.ModuleList):
            for layer in part:
                layer.compile(backend=COMPILER)


def distribute(model: nn.Module, ranks: Ranks, kind: str, precision: str, compiled: bool = False) -> PassRunner:
    """Prepare a model for a single process, DDP (`kind="ddp"`) or FSDP2 (`kind="fsdp"`)."""
    if ranks.device.type == "cuda" and precision == "bf16":
        torch.set_float32_matmul_precision("high")  # matrix products that stay in fp32 are computed in TF32
    if compiled:
        compile_layers(model)
    if ranks.world == 1:
        alone = Pass(model, ranks, precision)
        return PassRunner(alone, alone)
    if kind == "fsdp":
        return Sharded(model, ranks, precision)
    return Replicated(_JoinedPass(model, ranks, precision))


def sync_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Copy rank 0's buffers, such as batch norm statistics, to all ranks. A resumed run has the same values."""
    if ranks.world > 1:
        for buffer in model.buffers():
            distributed.broadcast(buffer, 0)


def gather(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Gather complete tensors on the CPU of rank 0. Other ranks get an empty dict. Every rank must call it."""
    gathered = {}
    for name, tensor in tensors.items():
        full = plain(tensor.detach())
        if ranks.first:
            gathered[name] = full.cpu().contiguous()
    return gathered
