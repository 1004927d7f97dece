"""Train until eight samples are learnt."""

from collections.abc import Sequence
from random import Random

import torch

from diptych.core import Sample, Update, collate
from diptych.systems.tden.model import Tden


def learn(
    model: Tden, updates: Sequence[Update], samples: Sequence[Sample], steps: int, lr: float = 4e-3, enough: float = 0
) -> float:
    """The highest loss a thing predicted, of any objective in the last step of each update.

    The same words are hidden at each step. It ends early where this loss is below `enough`.
    """
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    found = [float("inf")] * len(updates)
    for step in range(steps):
        update = updates[step % len(updates)]
        batch = collate(update.prepare(list(samples), Random(0)))
        counts = update.counts(batch)
        for losses in update.losses(model, batch):
            parts = [loss / counts[name] for name, loss in losses.items() if counts[name]]
            torch.stack(parts).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            found[step % len(updates)] = float(torch.stack(parts).detach().max())
        if max(found) < enough:
            break
    model.eval()
    return max(found)
