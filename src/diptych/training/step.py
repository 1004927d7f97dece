"""An optimizer step: forward and backward of every micro-batch, then the update of the weights."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed, nn

from diptych.core import Following, Losses, Update
from diptych.runtime.devices import to_device
from diptych.runtime.errors import TrainingError
from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.training.distribution import PassRunner
from diptych.training.feeding import Batches, BatchPart, Counts, Maker, Sender, Updates
from diptych.training.first_pass import FIRST_STEPS, check_losses, checked_states, raise_without_targets
from diptych.training.optimizer import clip, set_rate
from diptych.training.ranks import Ranks, seed_part
from diptych.training.stopping import StopRequest


@dataclass
class StepReport:
    """The numbers of one step, which are the same on every rank."""

    # {objective: its mean loss per target}; "objective/2" is the loss of a second pass.
    losses: dict[str, float] = field(default_factory=dict)
    total: float = 0.0
    gradient_norm: float = 0.0
    stop: bool = False  # True: a rank received a signal to stop
    examples: list[dict[str, Any]] = field(default_factory=list)  # captions that were sampled on this rank


@dataclass
class PendingPass:
    """The numbers of a pass. They may not have arrived from the GPU yet."""

    place: str
    names: list[str]
    losses: list[str]  # names of the objectives that have a loss in this pass
    keys: list[list[str]]  # record keys of this rank, one list per micro-batch
    # In this order: losses over all ranks, the number of ranks that received a signal to stop, the gradient norm, and
    # the losses of this rank.
    numbers: Float[Tensor, "n"]
    # An event after the copy of the numbers to the CPU; None: the numbers are already on the CPU.
    there: torch.cuda.Event | None = None

    def read(self) -> tuple[Counts, bool, float]:
        """Return the loss of each objective, True if the run should stop, and the gradient norm.

        Raises TrainingError on all ranks if a number is not finite.
        """
        if self.there is not None:
            self.there.synchronize()
        count = len(self.names)
        *totals, stop, norm = self.numbers[: count + 2].tolist()
        named = dict(zip(self.names, totals, strict=True))
        if names := [name for name, total in named.items() if not math.isfinite(total)]:
            own = self.numbers[count + 2 :].view(len(self.keys), count).isfinite().all(1).tolist()
            bad = [keys for keys, whole in zip(self.keys, own, strict=True) if not whole]
            keys = ", ".join(key for part in bad for key in part)
            where = f"; records: {keys}" if keys else "" if bad else "; in a micro-batch of another process"
            raise TrainingError(f"the loss of {', '.join(names)} is not finite ({self.place}{where})")
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient is not finite, although the loss is finite ({self.place})")
        return named, stop > 0, norm


@dataclass
class PendingStep:
    """The numbers of a step. On a GPU they are read one step later, so that the GPU always has queued work."""

    counts: Counts
    weights: Counts
    examples: list[dict[str, Any]]
    passes: list[PendingPass] = field(default_factory=list)

    def read(self) -> StepReport:
        """Wait for the numbers and return them. Raises TrainingError if a number is not finite."""
        report = StepReport(examples=self.examples)
        for turn, one in enumerate(self.passes):
            totals, report.stop, report.gradient_norm = one.read()
            for name in one.losses:
                if self.counts[name]:
                    mean = totals[name] / self.counts[name]
                    report.losses[f"{name}/{turn + 1}" if turn else name] = mean
                    report.total += self.weights[name] * mean
        return report


@dataclass(frozen=True)
class Stepper:
    """Performs the optimizer steps of a rank."""

    module: nn.Module
    updates: Updates
    batches: Batches[Any]
    distributed: PassRunner
    optimizer: torch.optim.Optimizer
    config: OptimizerConfig
    training: TrainingConfig
    ranks: Ranks
    stop: StopRequest
    sender: Sender
    late: bool = False  # True: a step's numbers are read only when the next step has been queued
    targets: list[bool] = field(default_factory=list)  # for each of the first steps: True if the step had targets
    checked: list[Update] = field(default_factory=list)  # updates whose losses were checked (see `first_pass`)

    @property
    def parts(self) -> int:
        """Number of micro-batches of a step, over all ranks."""
        return self.training.accumulation(self.ranks.world) * self.ranks.world

    @property
    def mine(self) -> range:
        return range(self.ranks.rank, self.parts, self.ranks.world)

    @property
    def maker(self) -> Maker:
        return Maker(self.updates, self.batches, self.parts, pinned=self.ranks.device.type == "cuda")

    def epoch(self, step: int) -> float | None:
        """Return the passes over the training samples of `step` steps. None if the data has no epochs."""
        steps: int | None = getattr(self.batches, "steps_per_epoch", None)
        return step / steps if steps else None

    def run(self, step: int, parts: list[BatchPart], rate: float, following: BatchPart | None = None) -> PendingStep:
        """Perform step `step` (from 0) on its micro-batches `parts`.

        Meanwhile `following`, the first micro-batch of the next step, is copied to the device.

        Messages and logs count steps from 1. If a loss or gradient is not finite, this raises TrainingError before
        weights change. With `late`, `PendingStep.read` raises it instead.
        """
        self.module.train()
        update = self.updates.at(step)
        names = sorted(parts[0].counts)
        counts = dict(zip(names, self.ranks.sum([sum(p.counts[n] for p in parts) for n in names]), strict=True))
        weights = {name: update.weights.get(name, 1.0) for name in names}
        self._check_targets(update, any(counts.values()) or any(part.held for part in parts))
        # DDP averages gradients over ranks. The factor `world` turns the mean into a sum, which is divided by the total
        # count.
        scales = {n: weights[n] * self.ranks.world / counts[n] for n in names if counts[n] > 0}
        factors = [part.scaled(scales) for part in parts]
        passes = self._passes(update, parts, following)
        set_rate(self.optimizer, rate)
        pending = PendingStep(counts, weights, [])
        for turn in count():
            sums = self._forward_backward(step, turn, passes, parts, factors)
            if sums is None:
                break
            self.distributed.settle()
            norm = clip(self.module.parameters(), self.config)
            place = f"step {step + 1}, pass {turn + 1}, learning rate {rate:g}"
            pending.passes.append(self._sums(place, sums, parts, list(counts), norm))
            if not self.late:
                pending.passes[-1].read()
            if scales:  # if no rank has targets, the weights must not change, not even by weight decay
                self.optimizer.step()
                if isinstance(self.module, Following):
                    self.module.after_step()
            self.optimizer.zero_grad(set_to_none=True)
        pending.examples = list(getattr(update, "examples", ()))
        return pending

    def _check_targets(self, update: Update, there: bool) -> None:
        """Raise an error if none of the first steps had targets."""
        first = min(FIRST_STEPS, self.training.steps)
        if len(self.targets) < first:
            self.targets.append(there)
            if len(self.targets) == first and not any(self.targets):
                raise_without_targets(update, first)

    def trial(self) -> None:
        """Run a forward and a backward pass to find out whether a micro-batch fits into memory.

        Weights and buffers are not changed.

        The trial also allocates two numbers per weight, like the state of an optimizer.
        """
        part, update = self.maker((0, self.ranks.rank)), self.updates.at(0)
        state = [torch.empty_like(weight) for weight in self.module.parameters() for _ in range(2)]
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        self.module.train()
        scales = {name: 1 / count for name, count in part.counts.items() if count > 0}
        try:
            total, _ = self.distributed.pass_(self._losses(update, part), scales) or (None, None)
            if total is not None:
                total.backward()
        finally:
            self.module.zero_grad(set_to_none=True)
            for buffer, before in buffers:
                buffer.copy_(before)
            del state

    def _passes(self, update: Update, parts: list[BatchPart], following: BatchPart | None) -> list[Iterator[Losses]]:
        """Return a generator of losses for each micro-batch.

        When a generator starts, it sends its micro-batch and the next one to the device.
        """

        def of(part: BatchPart, after: BatchPart | None) -> Iterator[Losses]:
            self.sender.send(part)
            self.sender.send(after)
            yield from self._losses(update, part)

        return [of(part, after) for part, after in zip(parts, [*parts[1:], following], strict=True)]

    def _losses(self, update: Update, part: BatchPart) -> Iterator[Losses]:
        """Yield the losses of a micro-batch, one item per pass.

        When the update runs for the first time, the losses are checked.
        """
        passes = update.losses(self.module, self.sender.arrived(part))
        if any(one is update for one in self.checked):
            yield from passes
            return
        while True:
            with checked_states(self.module):
                losses = next(passes, None)
            if losses is None:
                break
            check_losses(update, losses, part.counts)
            yield losses
        self.checked.append(update)

    def _forward_backward(
        self, step: int, turn: int, passes: Sequence[Iterator[Losses]], parts: list[BatchPart], scales: list[Counts]
    ) -> list[Losses] | None:
        """Run pass `turn` of every micro-batch. Return the losses of each, or None if the update has no more passes."""
        done: list[Losses] = []
        for index, one in enumerate(passes):
            seed_part(self.training.seed, step, turn, self.mine[index])
            sums = self.distributed.run(one, scales[index], last=index == len(parts) - 1)
            if sums is None:
                # The generators are finished outside of DDP, because DDP would wait for a backward pass.
                assert not done, "parts with different numbers of passes"
                assert not any(next(p, None) for p in passes), "parts with different numbers of passes"
                return None
            done.append(sums)
        return done

    def _sums(
        self, place: str, sums: list[Losses], parts: list[BatchPart], names: list[str], norm: Tensor
    ) -> PendingPass:
        """Sum each objective's loss over micro-batches and ranks, and count the ranks that stop, in one reduction."""
        if unknown := {name for losses in sums for name in losses} - set(names):
            raise TrainingError(f"found losses but no counts of targets for {', '.join(sorted(unknown))}")
        device = self.ranks.device
        kind = torch.float32 if device.type == "mps" else torch.float64
        nothing = torch.zeros((), device=device)
        own = [[s[n] if n in s and p.counts[n] else nothing for n in names] for s, p in zip(sums, parts, strict=True)]
        stops = to_device([float(self.stop.requested)], device, kind)
        rows = stops.new_zeros(len(parts), 0)
        if names:
            rows = torch.stack([one.to(kind) for row in own for one in row]).view(len(parts), -1)
        totals = torch.cat([sum(rows[1:], rows[0]), stops])
        if self.ranks.world > 1:
            distributed.all_reduce(totals)
        numbers = torch.cat([totals, norm.to(totals)[None], rows.flatten()])
        keys = [part.keys for part in parts]
        if device.type != "cuda":
            return PendingPass(place, names, list(sums[0]), keys, numbers)
        here = torch.empty(numbers.shape, dtype=kind, pin_memory=True).copy_(numbers, non_blocking=True)
        there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        there.record()
        return PendingPass(place, names, list(sums[0]), keys, here, there)
