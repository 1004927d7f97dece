"""The exponential moving average (EMA) of weights, and functions for named tensors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError, nearest
from diptych.training.sharding import place


class Ema:
    """An exponential moving average of a module's parameters.

    After n steps the decay is at most (1 + n) / (10 + n). Otherwise the initial weights would dominate the average in
    short runs.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(module.named_parameters())
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average after optimizer step `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.average.values()), list(self.parameters.values()), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside this context, the module has the averaged weights. Afterwards its own weights are restored."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self.parameters.items():
            kept = parameter.clone()
            parameter.copy_(self.average[name])
            self.average[name].copy_(kept)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return {name: tensor} of all parameters and saved buffers. A tied weight occurs once, under its first name."""
    parameters = dict(module.named_parameters())
    every = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    saved = module.state_dict().keys()
    buffers = {name: b for name, b in module.named_buffers() if name in saved and name not in every}
    return {name: t.detach() for name, t in {**parameters, **buffers}.items()}


@torch.no_grad()
def put_tensors(values: Mapping[str, Tensor], targets: Mapping[str, Tensor], source: str) -> None:
    """Copy each tensor of `values` into the target with the same name.

    Raises CheckpointError if names or shapes differ. `source`: the origin of the values, for the error.
    """
    for name in [*values.keys() - targets.keys(), *targets.keys() - values.keys()]:
        whose = "this model lacks" if name in values else "the weights lack"
        raise CheckpointError(f"{source} belongs to another model: {whose} {name!r}; {nearest(name, targets)}")
    for name, target in targets.items():
        if values[name].shape != target.shape:
            shape, wanted = tuple(values[name].shape), tuple(target.shape)
            raise CheckpointError(
                f"{source} fits another model: {name} has shape {shape}, expected {wanted}; pass this model's weights"
            )
        target.copy_(place(values[name], target))
