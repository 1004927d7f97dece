"""Muon: the step of a weight matrix is orthogonalised, so that it moves all directions alike; the rest takes AdamW.

Keller Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024): momentum with a look ahead, then five
Newton-Schulz iterations that pull all singular values near 1. Scaled as in "Muon is scalable for LLM training"
(arXiv 2502.16982, Eq. 4), so that rates and decay are AdamW's. The Storybook detector learns in half the steps with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

ORTHOGONAL = "muon_params"  # in a group: whether its weights step so
MOMENTUM = 0.95
STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315  # of the polynomial, chosen by Jordan to be steep at 0


class Muon(torch.optim.Optimizer):
    """Groups say by `muon_params` which of the two ways their parameters go; weights of convolutions are taken as
    matrices of their output channels."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._adamw = torch.optim.AdamW(self.param_groups, lr=lr, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        # Loading a state makes new tables, so they are shared anew each time.
        self._adamw.param_groups = [group for group in self.param_groups if not group[ORTHOGONAL]]
        self._adamw.state = self.state
        self._adamw.step()
        for group in self.param_groups:
            if group[ORTHOGONAL]:
                for weight in group["params"]:
                    if weight.grad is not None:
                        self._turn(weight, weight.grad, group["lr"], group["weight_decay"])

    def _turn(self, weight: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        if not self.state[weight]:
            self.state[weight]["momentum"] = torch.zeros_like(weight)
        momentum = self.state[weight]["momentum"].lerp_(gradient, 1 - MOMENTUM)
        matrix = gradient.lerp(momentum, MOMENTUM).flatten(1)
        turned = orthogonalised(matrix) * 0.2 * max(matrix.shape) ** 0.5
        weight.mul_(1 - rate * decay).sub_(turned.view_as(weight), alpha=rate)


def orthogonalised(matrix: Tensor) -> Tensor:
    """About U V' of the matrix U S V': its singular values end between 0.7 and 1.2.

    The iterations multiply the matrix from the left by polynomials of its Gram matrix, which commute: these are
    multiplied together first, small and square, and meet the wide matrix once.
    """
    high = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if high else matrix
    wide = wide / (wide.norm() + 1e-7)
    gram = wide @ wide.T
    factor = None
    for step in range(STEPS):
        polynomial = torch.addmm(gram, gram, gram, beta=B, alpha=C)
        polynomial.diagonal().add_(A)
        factor = polynomial if factor is None else polynomial @ factor
        if step < STEPS - 1:
            gram = polynomial @ gram @ polynomial
    turned: Tensor = factor @ wide
    return turned.T if high else turned
