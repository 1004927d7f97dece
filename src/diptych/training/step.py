"""One step: every part's passes forward and backward, then the optimizer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed, nn

from diptych.core import Losses, Update
from diptych.runtime.devices import to_device
from diptych.runtime.errors import TrainingError
from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.training.distribution import Distributed
from diptych.training.feeding import Batches, BatchPart, Counts, Maker, Sender, Updates
from diptych.training.optimizer import clip, set_rate
from diptych.training.ranks import Ranks, seed_part
from diptych.training.stopping import StopRequest


@dataclass
class StepReport:
    """What one step found, the same on every rank."""

    losses: dict[str, float] = field(default_factory=dict)  # per thing predicted; a second pass is called objective/2
    total: float = 0.0
    gradient_norm: float = 0.0
    stop: bool = False  # some rank was asked to stop
    examples: list[dict[str, Any]] = field(default_factory=list)  # captions that this rank's model drew, if it draws


@dataclass
class PassFound:
    """What a pass found, in numbers that are still on their way from a GPU."""

    place: str
    names: list[str]
    losses: list[str]  # those of them that this pass asks
    keys: list[list[str]]  # of the records of each part of this rank
    numbers: Float[Tensor, "n"]  # each name's sum over all ranks; how many of them stop; the norm; the parts' own sums
    there: torch.cuda.Event | None = None  # None: no need to wait for them

    def read(self) -> tuple[Counts, bool, float]:
        """Sums, whether to stop, the gradient's norm. One that is not finite ends the run, on all ranks alike."""
        if self.there is not None:
            self.there.synchronize()
        count = len(self.names)
        *totals, stop, norm = self.numbers[: count + 2].tolist()
        named = dict(zip(self.names, totals, strict=True))
        if names := [name for name, total in named.items() if not math.isfinite(total)]:
            own = self.numbers[count + 2 :].view(len(self.keys), count).isfinite().all(1).tolist()
            bad = [keys for keys, whole in zip(self.keys, own, strict=True) if not whole]
            keys = ", ".join(key for part in bad for key in part)
            where = f"; records: {keys}" if keys else "" if bad else "; in a part of another process"
            raise TrainingError(f"the loss of {', '.join(names)} is not finite ({self.place}{where})")
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient is not finite though the loss is ({self.place})")
        return named, stop > 0, norm


@dataclass
class StepFound:
    """What a step found; read at once, or, of a GPU, a step later: then the GPU always has work that is waiting."""

    counts: Counts
    weights: Counts
    examples: list[dict[str, Any]]
    passes: list[PassFound] = field(default_factory=list)

    def read(self) -> StepReport:
        """Raises TrainingError."""
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
    module: nn.Module
    updates: Updates
    batches: Batches[Any]
    distributed: Distributed
    optimizer: torch.optim.Optimizer
    config: OptimizerConfig
    training: TrainingConfig
    ranks: Ranks
    stop: StopRequest
    sender: Sender
    late: bool = False  # whether a step's numbers are read after the next one has been given to the device

    @property
    def parts(self) -> int:
        """Of the global batch."""
        return self.training.accumulation(self.ranks.world) * self.ranks.world

    @property
    def mine(self) -> range:
        return range(self.ranks.rank, self.parts, self.ranks.world)

    @property
    def maker(self) -> Maker:
        return Maker(self.updates, self.batches, self.parts, pinned=self.ranks.device.type == "cuda")

    def run(self, step: int, parts: list[BatchPart], rate: float, following: BatchPart | None = None) -> StepFound:
        """Step `step`, counted from 0, while the part `following` it is sent to the device; messages and logs count
        from 1, as steps done. Raises TrainingError before a weight has changed, or, where numbers are read late, as
        they are read."""
        self.module.train()
        update = self.updates.at(step)
        names = sorted(parts[0].counts)
        counts = dict(zip(names, self.ranks.sum([sum(p.counts[n] for p in parts) for n in names]), strict=True))
        weights = {name: update.weights.get(name, 1.0) for name in names}
        # Gradients are averaged over ranks, but the loss is a sum divided by the count over all of them: hence `world`.
        scales = {n: weights[n] * self.ranks.world / counts[n] for n in names if counts[n] > 0}
        asked = [part.scaled(scales) for part in parts]
        passes = self._passes(update, parts, following)
        set_rate(self.optimizer, rate)
        found = StepFound(counts, weights, [])
        for turn in count():
            sums = self._forward_backward(step, turn, passes, parts, asked)
            if sums is None:
                break
            self.distributed.settle()
            norm = clip(self.module.parameters(), self.config)
            place = f"step {step + 1}, pass {turn + 1}, learning rate {rate:g}"
            found.passes.append(self._found(place, sums, parts, list(counts), norm))
            if not self.late:
                found.passes[-1].read()
            if scales:  # else nothing was predicted anywhere, and decay alone is not a step
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        found.examples = list(getattr(update, "examples", ()))
        return found

    def trial(self) -> None:
        """The first pass of this rank's first part, forward and backward, beside two numbers for each weight as an
        optimizer keeps: for the memory it takes. Nothing is left of it."""
        part, update = self.maker((0, self.ranks.rank)), self.updates.at(0)
        state = [torch.empty_like(weight) for weight in self.module.parameters() for _ in range(2)]
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        self.module.train()
        scales = {name: 1 / count for name, count in part.counts.items() if count > 0}
        try:
            total, _ = self.distributed.pass_(update.losses(self.module, self.sender.arrived(part)), scales) or (
                None,
                None,
            )
            if total is not None:
                total.backward()
        finally:
            self.module.zero_grad(set_to_none=True)
            for buffer, before in buffers:
                buffer.copy_(before)
            del state

    def _passes(self, update: Update, parts: list[BatchPart], following: BatchPart | None) -> list[Iterator[Losses]]:
        """Of each part, whose batch comes to the device when it is begun, and the next one's starts then."""

        def of(part: BatchPart, after: BatchPart | None) -> Iterator[Losses]:
            self.sender.send(part)
            self.sender.send(after)
            yield from update.losses(self.module, self.sender.arrived(part))

        return [of(part, after) for part, after in zip(parts, [*parts[1:], following], strict=True)]

    def _forward_backward(
        self, step: int, turn: int, passes: Sequence[Iterator[Losses]], parts: list[BatchPart], scales: list[Counts]
    ) -> list[Losses] | None:
        """Pass `turn` of every part, by its scales; None where the update has no more."""
        found: list[Losses] = []
        for index, one in enumerate(passes):
            seed_part(self.training.seed, step, turn, self.mine[index])
            sums = self.distributed.run(one, scales[index], last=index == len(parts) - 1)
            if sums is None:
                # Not through the wrap: DDP would wait for a backward. The generators only run to their ends here.
                assert not found, "parts with different numbers of passes"
                assert not any(next(p, None) for p in passes), "parts with different numbers of passes"
                return None
            found.append(sums)
        return found

    def _found(
        self, place: str, sums: list[Losses], parts: list[BatchPart], names: list[str], norm: Tensor
    ) -> PassFound:
        """Each objective's sum over parts and ranks, and whether some rank was asked to stop: one exchange."""
        if unknown := {name for losses in sums for name in losses} - set(names):
            raise TrainingError(f"the update has losses but no counts for {', '.join(sorted(unknown))}")
        device = self.ranks.device
        kind = torch.float32 if device.type == "mps" else torch.float64
        nothing = torch.zeros((), device=device)
        own = [[s[n] if n in s and p.counts[n] else nothing for n in names] for s, p in zip(sums, parts, strict=True)]
        rows = torch.stack([one.to(kind) for row in own for one in row]).view(len(parts), -1) if names else nothing
        asked = to_device([float(self.stop.asked)], device, kind)
        totals = torch.cat([sum(rows[1:], rows[0]), asked]) if names else asked
        if self.ranks.world > 1:
            distributed.all_reduce(totals)
        numbers = torch.cat([totals, norm.to(totals)[None], rows.flatten() if names else asked[:0]])
        keys = [part.keys for part in parts]
        if device.type != "cuda":
            return PassFound(place, names, list(sums[0]), keys, numbers)
        here = torch.empty(numbers.shape, dtype=kind, pin_memory=True).copy_(numbers, non_blocking=True)
        there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        there.record()
        return PassFound(place, names, list(sums[0]), keys, here, there)
