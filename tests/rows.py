"""Layers that are run for some rows alone, against layers that are run for all."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from diptych.core import Batch, Update
from diptych.models import SystemModel, rows
from diptych.models.rows import Rows

RUBBISH = 1e4


def costs(model: SystemModel, update: Update, batch: Batch) -> list[Tensor]:
    """Of each pass the losses, then each weight's gradient of their sum."""
    torch.manual_seed(0)
    model.zero_grad()
    losses = list(update.losses(model, batch))
    sum((loss for one in losses for loss in one.values()), torch.zeros(())).backward()
    gradients = (torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters())
    return [loss.detach() for one in losses for loss in one.values()] + list(gradients)


def everything(patch: pytest.MonkeyPatch) -> None:
    """No row is cut, of padding or of what nobody asks for."""
    patch.setattr(rows, "asked_of", lambda *_: None)
    patch.setattr(rows, "WORTH", 0.0)


def rows_cut(patch: pytest.MonkeyPatch, run: Callable[[], Sequence[Tensor]], wanted: Sequence[Tensor]) -> int:
    """Runs with rubbish in all rows that are cut; the same numbers have to come. How many rows were cut."""
    cut = 0

    def put(self: Rows, found: Tensor) -> Tensor:
        nonlocal cut
        if self.home is None:
            return found.reshape(self.batch, self.length, -1)
        cut += self.batch * self.length - len(self.home)
        nothing = found.new_full((self.batch * self.length, *found.shape[1:]), RUBBISH)
        return nothing.index_copy(0, self.home, found).reshape(self.batch, self.length, -1)

    with patch.context() as patched:
        patched.setattr(Rows, "put", put)
        found = run()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return cut
