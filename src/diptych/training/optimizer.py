"""Parameter groups, optimizers, learning rate schedules and gradient clipping."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.runtime.errors import RecipeError, nearest
from diptych.training.config import OptimizerConfig
from diptych.training.muon import ORTHOGONAL, Muon
from diptych.training.sharding import plain

MULTIPLIER = "multiplier"  # key of a parameter group, with the factor of the group's learning rate
LATE = 1e12  # by this step number, 1 - beta ** step has rounded to 1


class BertAdam(torch.optim.Optimizer):
    """Adam as in BERT's code: no bias correction, eps outside the square root, decoupled weight decay.

    Without bias correction, the first steps are about 3 times as large as Adam's (with betas 0.9 and 0.999). So BERT
    needs warm-up. This class calls torch's fused AdamW with a step number (LATE) at which the correction is 1.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            for p in params:
                if not self.state[p]:
                    self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            beta1, beta2 = group["betas"]
            torch._fused_adamw_(
                params,
                [p.grad for p in params],
                [self.state[p]["exp_avg"] for p in params],
                [self.state[p]["exp_avg_sq"] for p in params],
                [],
                [torch.full((), LATE, device=params[0].device)] * len(params),
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )


def learning_rate(config: OptimizerConfig, step: int, steps: int, batch: int) -> float:
    """Return the learning rate of step `step` (from 0) of `steps`, for groups with multiplier 1."""
    return highest_rate(config, batch) * _factor(config, step, config.schedule_steps or steps)


def highest_rate(config: OptimizerConfig, batch: int) -> float:
    """Return the learning rate at the end of warm-up."""
    return config.lr * batch if config.lr_times_batch else config.lr


def _factor(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return the factor of the highest learning rate, 0 to 1.

    The factor is above 0 in the last step, and in the first step unless `warmup_from_zero`. A step with learning rate 0
    would change nothing.
    """
    warmup = config.warmup_steps if config.warmup_steps is not None else round((config.warmup_share or 0) * steps)
    if step < warmup:
        return (step if config.warmup_from_zero else step + 1) / warmup
    left = (steps - step) / max(steps - warmup, 1)  # 1 at the end of warm-up, then falls to 0 at the last step
    if config.schedule == "linear":
        return max(left, 0.0)
    if config.schedule == "cosine":
        return (1 - math.cos(math.pi * min(max(left, 0.0), 1.0))) / 2
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / (step + 1))
    if config.schedule == "step":
        every = config.decay_every
        falls = step // every if every is not None else sum(m <= step for m in config.milestones)
        return config.gamma**falls
    return 1.0


def parameter_groups(module: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Group trainable parameters by (multiplier, weight decay, Muon or not).

    Raises RecipeError if a prefix matches no parameter, or if all parameters are frozen.
    """
    bare = set() if config.decay_biases_and_norms else _biases_and_norms(module)
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    turning = config.muon_params if config.kind == "muon" else ()
    _check_prefixes("lr_multipliers", config.lr_multipliers, module, trained)
    _check_prefixes("muon_params", turning, module, trained)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        decay = 0.0 if name in bare else config.weight_decay
        turned = parameter.ndim > 1 and name.startswith(turning)
        groups.setdefault((_multiplier(name, config.lr_multipliers), decay, turned), []).append(parameter)
    if not groups:
        raise RecipeError("nothing to train: every parameter of the model is frozen")
    return [
        {"params": params, MULTIPLIER: multiplier, "weight_decay": decay, ORTHOGONAL: turned}
        for (multiplier, decay, turned), params in groups.items()
    ]


def _check_prefixes(key: str, prefixes: Iterable[str], module: nn.Module, trained: Collection[str]) -> None:
    """Raise RecipeError for a prefix of no trained parameter, unless it names an empty list of layers."""
    empty = {name for name, part in module.named_modules() if isinstance(part, nn.ModuleList) and not len(part)}
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in trained) and prefix.removesuffix(".") not in empty:
            tops = {name.rsplit(".", depth)[0] for name in trained for depth in range(1, name.count(".") + 1)}
            raise RecipeError(f"optimizer.{key}: no trained parameter starts with {prefix!r}: {nearest(prefix, tops)}")


def _multiplier(name: str, groups: Mapping[str, float]) -> float:
    """Return the multiplier of the longest prefix in `groups` that matches the parameter's name; 1 if none does."""
    prefixes = [prefix for prefix in groups if name.startswith(prefix)]
    return groups[max(prefixes, key=len)] if prefixes else 1.0


def _biases_and_norms(module: nn.Module) -> set[str]:
    return {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        for name, _ in part.named_parameters(recurse=False)
        if name.endswith("bias") or "Norm" in type(part).__name__
    }


def build_optimizer(module: nn.Module, config: OptimizerConfig, device: torch.device) -> torch.optim.Optimizer:
    groups = parameter_groups(module, config)
    fused = device.type in ("cpu", "cuda")
    if config.kind == "bert_adam":
        return BertAdam(groups, config.lr, config.betas, config.eps, config.weight_decay)
    if config.kind == "muon":
        return Muon(groups, config.lr, config.betas, config.eps, config.weight_decay)
    if config.kind == "sgd":
        # Not fused: the fused SGD of torch 2.15 does not support sharded weights (FSDP), or groups in which some
        # weights have no momentum yet.
        return torch.optim.SGD(groups, config.lr, momentum=config.momentum)
    kind = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    return kind(groups, config.lr, betas=config.betas, eps=config.eps, fused=fused)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group[MULTIPLIER]


def clip(parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> Float[Tensor, ""]:
    """Clip the gradients in place. Return their global L2 norm before clipping as a tensor on their device."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = plain(torch.stack(torch._foreach_norm(gradients)))
    norm: Tensor = torch.linalg.vector_norm(norms)
    # torch's clip_grads_with_norm_ needs parameters, but only gradients are known here. torch and BERT also add 1e-6.
    if config.clip is not None:
        torch._foreach_mul_(gradients, torch.clamp(config.clip / (norm + 1e-6), max=1.0))
    elif config.clip_each is not None:
        torch._foreach_mul_(gradients, torch.clamp(config.clip_each / (norms + 1e-6), max=1.0).unbind())
    elif config.clip_value is not None:
        torch._foreach_clamp_min_(gradients, -config.clip_value)
        torch._foreach_clamp_max_(gradients, config.clip_value)
    return norm
