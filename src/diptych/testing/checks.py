"""Check that a model can overfit a few samples, and that heads and objectives request all states that they read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from diptych.core import Batch, States, Update, collate
from diptych.models import SystemModel, rows
from diptych.models.rows import Rows
from diptych.testing.case import Case

LEARNT = 0.05  # a model has learnt if its loss, in nats per word or answer, is below this; guessing among eight gives 2
CHECK_EVERY = 50  # the model's answers are checked each time after this number of training steps
RUBBISH = 1e4  # replaces values that the model must not read; if it reads them, its output changes


def learn(case: Case, steps: int = 400, lr: float = 2e-3, anew: bool = False) -> Iterator[dict[str, float]]:
    """Train on all samples.

    Before each step, yield the mean loss of each objective. Batches are prepared once. With `anew`, masks and
    mismatched pairs are drawn again at each step.
    """
    case.model.train()
    updates, rng = [update for update, _ in case.schedule.updates], Random(0)
    batches = [collate(update.prepare(list(case.samples), Random(0))) for update in updates]
    optimizer = torch.optim.AdamW(case.model.parameters(), lr=lr, fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, 20 * (step + 1) / steps, 2 * (1 - step / steps))
        if anew:
            batches = [collate(update.prepare(list(case.samples), rng)) for update in updates]
        means: dict[str, Tensor] = {}
        for number, (update, batch) in enumerate(zip(updates, batches, strict=True)):
            counts, (losses,) = update.counts(batch), update.losses(case.model, batch)
            means |= {f"{number} {name}": loss / counts[name] for name, loss in losses.items() if counts[name]}
        yield {name: float(mean.detach()) for name, mean in means.items()}
        optimizer.zero_grad()
        torch.stack([*means.values()]).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(case.model.parameters(), 1.0)
        optimizer.step()


def answers_rightly(case: Case) -> bool:
    """Return True if the task's validation score is 100. Also return True for pre-training, which has no answers."""
    return case.spec.pretrains or case.scores()[case.spec.training.watched] >= 100


def check_overfit(
    case: Case,
    steps: int = 400,
    lr: float = 2e-3,
    enough: Callable[[dict[str, float]], float] | float = LEARNT,
    anew: bool = False,
    right: Callable[[Case], bool] = answers_rightly,
) -> None:
    """Check that the model overfits: each loss falls below `enough`, and `right` returns True.

    `enough`: a loss in nats, or a function that computes this loss from the initial losses.
    """
    start: dict[str, float] = {}
    for step, losses in enumerate(learn(case, steps, lr, anew), start=1):
        start = start or losses
        least = enough(start) if callable(enough) else enough
        low = all(loss < least for loss in losses.values())
        if low and (case.spec.pretrains or step % CHECK_EVERY == 0) and right(case):
            return
    name = f"{case.recipe.name}: after {steps} steps"
    assert low, f"{name} the losses are {losses}, expected below {least:.3g}; they were {start}"
    assert right(case), f"{name} not all answers are right; the losses are {losses}"


def costs(model: SystemModel, update: Update, batch: Batch) -> list[Tensor]:
    """Return the losses of each forward pass, then the gradient of their sum for each weight."""
    torch.manual_seed(0)
    model.zero_grad()
    losses = list(update.losses(model, batch))
    sum((loss for one in losses for loss in one.values()), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    gradients = (torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters())
    return [loss.detach() for one in losses for loss in one.values()] + list(gradients)


def uncut(run: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    """Return the result of `run` when no rows are left out: neither padding nor states that no head needs."""
    with patch.object(rows, "special_tokens_read", lambda *_: None), patch.object(rows, "WORTH", 0.0):
        return run()


def disturbed(model: SystemModel, batch: Batch, states: States) -> tuple[States, int]:
    """Return the states with RUBBISH in all rows and special tokens that were not requested, and the number replaced.

    Nothing is replaced if there was no request, or if a requested head has no `reads`, because it may read all states.
    """
    read, request, count = rows.special_tokens_read(batch, model.heads), batch.request, 0
    if read is None or request is None:
        return states, 0
    blocks: dict[str, Any] = {}
    for name in ("regions", "text", "target"):
        if (block := getattr(states, name)) is not None:
            mask: Tensor | None = getattr(request, name)
            kept = block.new_zeros(block.shape[:2], dtype=torch.bool) if mask is None else mask
            blocks[name], count = torch.where(kept[..., None], block, RUBBISH), count + int((~kept).sum())
    special = {name: state if name in read else 0 * state + RUBBISH for name, state in states.special.items()}
    count += sum(len(state) for name, state in special.items() if name not in read)
    return replace(states, **blocks, special=special), count


def rows_cut(model: SystemModel, run: Callable[[], Sequence[Tensor]], wanted: Sequence[Tensor]) -> int:
    """Check that `run` gives the result `wanted` with RUBBISH in all rows that it does not request.

    Return the number of these rows. These are the rows that the model leaves out, and the rows of its states that were
    not requested.
    """
    cut = 0

    def disturb(_: nn.Module, given: tuple[Any, ...], states: object) -> States | None:
        nonlocal cut
        if not (given and isinstance(given[0], Batch) and isinstance(states, States)):
            return None
        changed, count = disturbed(model, given[0], states)
        cut += count
        return changed

    def put(self: Rows, states: Tensor) -> Tensor:
        nonlocal cut
        if self.home is None:
            return states.reshape(self.batch, self.length, -1)
        cut += self.batch * self.length - len(self.home)
        nothing = states.new_full((self.batch * self.length, *states.shape[1:]), RUBBISH)
        return nothing.index_copy(0, self.home, states).reshape(self.batch, self.length, -1)

    hook = model.register_forward_hook(disturb)
    try:
        with patch.object(Rows, "put", put):
            actual = run()
    finally:
        hook.remove()
    torch.testing.assert_close(list(actual), list(wanted), rtol=1e-4, atol=1e-5)
    return cut


def check_masks(case: Case) -> int:
    """Check that each objective's `request` names all states that its loss reads, and that no layer reads padding.

    Losses and gradients must not change if RUBBISH replaces all other states and the padding. Returns the number of
    replaced rows, which is 0 only if the objectives read all states.
    """
    case.model.train()
    cut = 0
    for update, _ in case.schedule.updates:
        batch = collate(update.prepare(list(case.samples), Random(0)))
        run = partial(costs, case.model, update, batch)
        whole = uncut(run)
        padded = uncut(partial(costs, case.model, update, rubbish_padded(batch)))
        torch.testing.assert_close(padded, whole, rtol=1e-4, atol=1e-5, msg=lambda text: f"padding is read: {text}")
        cut += rows_cut(case.model, run, whole)
    return cut


def rubbish_padded(batch: Batch) -> Batch:
    """Return the batch with random words and large features as padding."""
    outside = ~batch.regions_present[..., None]
    features = None if batch.features is None else batch.features.masked_fill(outside, 9.0)
    return replace(batch, text=batch.text.masked_fill(~batch.text_present, 7), features=features)


def check_heads(case: Case) -> int:
    """Check that each head's `reads` names all states that it reads.

    Losses, gradients and outputs of heads must not change if RUBBISH replaces all other states. Returns the number of
    replaced rows.
    """
    update, queries = case.schedule.at(0), case.questions()
    batch = collate(update.prepare(list(case.samples), Random(0)))

    def answered() -> list[Tensor]:
        read: list[Tensor] = []

        def keep(_module: nn.Module, _inputs: object, scores: Tensor) -> None:
            """Store the output of a head. If the head gives a score per region, the scores of padding are left out."""
            regions = queries.regions_present
            read.append(scores.view_as(regions)[regions] if scores.numel() == regions.numel() else scores)

        for name in update.objectives[0].heads:
            hook = case.model.heads[name].register_forward_hook(keep)
            with torch.no_grad():
                case.task.predict(case.model.eval(), queries)
            hook.remove()
        return costs(case.model.train(), update, batch) + read

    return rows_cut(case.model, answered, uncut(answered))
