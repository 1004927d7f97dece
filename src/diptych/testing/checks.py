"""Whether a few samples can be learnt by heart, and whether no more rows are read than heads and objectives name."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from unittest.mock import patch

import torch
from torch import Tensor, nn

from diptych.core import Batch, Update, collate
from diptych.models import SystemModel, rows
from diptych.models.rows import Rows
from diptych.testing.case import Case

LEARNT = 0.05  # nats a word or an answer; one of eight guessed costs 2
LOOKS = 50  # steps from one look at the answers to the next
RUBBISH = 1e4  # in rows that are cut


def learn(case: Case, steps: int = 400, lr: float = 3e-3, anew: bool = False) -> Iterator[dict[str, float]]:
    """The mean loss of each objective, of all updates together, before each step.

    The batches stay as they are; with `anew`, what is hidden and which pairs are wrong is drawn at each step.
    """
    case.model.train()
    updates, rng = [update for update, _ in case.schedule.updates], Random(0)
    batches = [collate(update.prepare(list(case.samples), Random(0))) for update in updates]
    optimizer = torch.optim.AdamW(case.model.parameters(), lr=lr)
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
    """Whether the score that chooses the task's weights is full, where a task is answered at all."""
    return case.spec.pretrains or case.scores()[case.spec.training.watched] >= 100


def check_overfit(
    case: Case,
    steps: int = 400,
    lr: float = 3e-3,
    enough: Callable[[dict[str, float]], float] | float = LEARNT,
    anew: bool = False,
    right: Callable[[Case], bool] = answers_rightly,
) -> None:
    """All samples are learnt by heart: each loss falls below `enough`, which may be made from the losses at the start,
    and the answers are `right`."""
    start: dict[str, float] = {}
    for step, found in enumerate(learn(case, steps, lr, anew), start=1):
        start = start or found
        least = enough(start) if callable(enough) else enough
        low = all(loss < least for loss in found.values())
        if low and (case.spec.pretrains or step % LOOKS == 0) and right(case):
            return
    name = f"{case.recipe.name}: after {steps} steps"
    assert low, f"{name} the losses are {found}, wanted below {least:.3g}; they were {start}"
    assert right(case), f"{name} not all answers are right; the losses are {found}"


def costs(model: SystemModel, update: Update, batch: Batch) -> list[Tensor]:
    """Of each pass the losses, then each weight's gradient of their sum."""
    torch.manual_seed(0)
    model.zero_grad()
    losses = list(update.losses(model, batch))
    sum((loss for one in losses for loss in one.values()), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    gradients = (torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters())
    return [loss.detach() for one in losses for loss in one.values()] + list(gradients)


def uncut(run: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    """What `run` computes if no row is cut, of padding or of what nothing asks for."""
    with patch.object(rows, "special_tokens_read", lambda *_: None), patch.object(rows, "WORTH", 0.0):
        return run()


def rows_cut(run: Callable[[], Sequence[Tensor]], wanted: Sequence[Tensor]) -> int:
    """How many rows `run` cuts. With rubbish in them it has to compute what is `wanted`."""
    cut = 0

    def put(self: Rows, found: Tensor) -> Tensor:
        nonlocal cut
        if self.home is None:
            return found.reshape(self.batch, self.length, -1)
        cut += self.batch * self.length - len(self.home)
        nothing = found.new_full((self.batch * self.length, *found.shape[1:]), RUBBISH)
        return nothing.index_copy(0, self.home, found).reshape(self.batch, self.length, -1)

    with patch.object(Rows, "put", put):
        found = run()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return cut


def check_masks(case: Case) -> int:
    """Each objective names in `request` all that its loss reads, and no layer reads padding: losses and gradients are
    the same with rubbish in all other rows. Returns how many rows were cut."""
    case.model.train()
    cut = 0
    for update, _ in case.schedule.updates:
        batch = collate(update.prepare(list(case.samples), Random(0)))
        run = partial(costs, case.model, update, batch)
        cut += rows_cut(run, uncut(run))
    return cut


def check_heads(case: Case) -> int:
    """Each head names in `reads` all that it reads: losses, gradients and what the heads answer are the same with
    rubbish in all other rows. Returns how many rows were cut."""
    update, asked = case.schedule.at(0), case.questions()
    batch = collate(update.prepare(list(case.samples), Random(0)))

    def answered() -> list[Tensor]:
        seen: list[Tensor] = []

        def keep(_module: nn.Module, _inputs: object, found: Tensor) -> None:
            """A score a region counts where there is a region."""
            regions = asked.regions_present
            seen.append(found.view_as(regions)[regions] if found.numel() == regions.numel() else found)

        for name in update.objectives[0].heads:
            hook = case.model.heads[name].register_forward_hook(keep)
            with torch.no_grad():
                case.task.predict(case.model.eval(), asked)
            hook.remove()
        return costs(case.model.train(), update, batch) + seen

    return rows_cut(answered, uncut(answered))
