"""Muon: an optimizer that orthogonalises the updates of weight matrices. Other parameters use AdamW.

It follows Keller Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024). After Nesterov momentum,
five Newton-Schulz iterations bring all singular values of the update close to 1. Updates are scaled as in "Muon is
scalable for LLM training" (arXiv 2502.16982, Eq. 4), so that AdamW's learning rates and weight decay can be kept. With
it, the Storybook detector needs half as many steps.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed

from diptych.training.sharding import place, plain

ORTHOGONAL = "muon_params"  # key of a parameter group; True: Muon trains the group, False: AdamW
MOMENTUM = 0.95
STEPS = 5
AT_ONCE = 2**24  # maximum number of elements that are orthogonalised in one batch
A, B, C = 3.4445, -4.7750, 2.0315  # coefficients of the Newton-Schulz polynomial, from Jordan's Muon


class Muon(torch.optim.Optimizer):
    """Muon for parameter groups with `muon_params` True, AdamW for the others.

    The weights of a convolution are treated as a matrix with one row per output channel.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._adamw = torch.optim.AdamW(self.param_groups, lr=lr, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        # load_state_dict replaces the groups, so AdamW gets them anew in each step.
        self._adamw.param_groups = [group for group in self.param_groups if not group[ORTHOGONAL]]
        self._adamw.state = self.state
        self._adamw.step()
        turning = [(weight, group) for group in self.param_groups if group[ORTHOGONAL] for weight in group["params"]]
        # Matrices of the same shape are orthogonalised in a batch.
        shapes: dict[tuple[int, int], list[tuple[Tensor, dict[str, Any], Tensor]]] = {}
        for weight, group in turning:
            if weight.grad is not None:
                matrix = plain(self._moved(weight, weight.grad)).flatten(1)
                rows, columns = sorted(matrix.shape)
                shapes.setdefault((rows, columns), []).append((weight, group, matrix))
        for (_, columns), alike in shapes.items():
            wide = [matrix.T if matrix.shape[0] > matrix.shape[1] else matrix for _, _, matrix in alike]
            for (weight, group, matrix), turned in zip(alike, shared(wide), strict=True):
                step = (turned.T if matrix.shape[0] > matrix.shape[1] else turned).reshape(weight.shape)
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.sub_(place(step, weight, everywhere=True), alpha=group["lr"] * 0.2 * columns**0.5)

    def _moved(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Update the momentum, and return the gradient with Nesterov momentum."""
        if not self.state[weight]:
            self.state[weight]["momentum"] = torch.zeros_like(weight)
        momentum: Tensor = self.state[weight]["momentum"].lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(momentum, MOMENTUM)


def shared(matrices: list[Tensor]) -> list[Tensor]:
    """Orthogonalise matrices that all processes have.

    Each process computes some of the results, then all processes gather them.
    """
    world = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    if world == 1:
        return _by_batches(matrices)
    each = math.ceil(len(matrices) / world)
    first = each * distributed.get_rank()
    mine = torch.zeros(each, *matrices[0].shape, device=matrices[0].device)
    for number, matrix in enumerate(_by_batches(matrices[first : first + each])):
        mine[number] = matrix
    gathered = mine.new_empty(world * each, *mine.shape[1:])
    distributed.all_gather_into_tensor(gathered, mine)
    return list(gathered[: len(matrices)])


def _by_batches(matrices: list[Tensor]) -> list[Tensor]:
    """Orthogonalise matrices of the same shape in batches of limited size, to limit memory."""
    few = max(1, AT_ONCE // matrices[0].numel()) if matrices else 1
    parts = (torch.stack(matrices[first : first + few]) for first in range(0, len(matrices), few))
    return [turned for part in parts for turned in orthogonalised(part)]


def orthogonalised(wide: Float[Tensor, "N r c"]) -> Float[Tensor, "N r c"]:
    """Approximate U V' of each matrix U S V'. The results have singular values between 0.7 and 1.2. Needs r <= c.

    Each iteration multiplies from the left by a polynomial of the Gram matrix (r x r). These factors commute, so their
    product is computed first and applied to the wide matrix once.
    """
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    gram = wide @ wide.mT
    factor = None
    for step in range(STEPS):
        polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        polynomial.diagonal(dim1=1, dim2=2).add_(A)
        factor = polynomial if factor is None else polynomial @ factor
        if step < STEPS - 1:
            gram = polynomial @ gram @ polynomial
    assert factor is not None
    return factor @ wide
