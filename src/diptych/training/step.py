"""One step: every part's passes forward and backward, then the optimizer."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from diptych.core import Losses, Update
from diptych.errors import TrainingError
from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.training.devices import Ranks, seed_part
from diptych.training.distribution import Distributed
from diptych.training.optimizer import clip, set_rate
from diptych.training.stopping import StopWish

B_co = TypeVar("B_co", covariant=True)
Counts = dict[str, float]


class Batches(Protocol[B_co]):
    """A pure function, called from threads. The global batch of a step is cut into `parts`; a part may have nothing to
    predict, but it has samples, and of one that is `.idle` nothing is learnt. A batch moves by `.to(device)` if it has
    that; a list `.keys` names its records."""

    def at(self, step: int, part: int, parts: int) -> B_co: ...


class Updates(Protocol):
    """Which update a step makes: a pure function, so that all ranks and resumes agree."""

    def at(self, step: int) -> Update: ...


@dataclass(frozen=True)
class Part:
    """A micro-batch, and how many objects each objective predicts in it."""

    batch: Any
    counts: Counts

    @property
    def keys(self) -> list[str]:
        keys = getattr(self.batch, "keys", None)
        return list(keys) if isinstance(keys, list | tuple) else []


@dataclass
class Report:
    """What one step found, the same on every rank."""

    losses: dict[str, float] = field(default_factory=dict)  # per thing predicted; a second pass is called objective/2
    total: float = 0.0
    gradient_norm: float = 0.0
    stop: bool = False  # some rank was asked to stop
    examples: list[dict[str, Any]] = field(
        default_factory=list
    )  # captions that this rank's model drew, where it draws any


@dataclass(frozen=True, kw_only=True)
class Stepper:
    module: nn.Module
    updates: Updates
    batches: Batches[Any]
    way: Distributed
    optimizer: torch.optim.Optimizer
    config: OptimizerConfig
    training: TrainingConfig
    ranks: Ranks
    wish: StopWish

    @property
    def parts(self) -> int:
        """Of the global batch."""
        return self.training.accumulation(self.ranks.world) * self.ranks.world

    @property
    def mine(self) -> range:
        return range(self.ranks.rank, self.parts, self.ranks.world)

    def make(self, place: tuple[int, int]) -> Part:
        """The part of (step, part), in a loading thread. Counting here, on the CPU, spares the GPU a wait."""
        step, part = place
        batch = self.batches.at(step, part, self.parts)
        counts = self.updates.at(step).counts(batch)
        idle = getattr(batch, "idle", False)
        return Part(batch, {name: 0.0 if idle else float(number) for name, number in counts.items()})

    def run(self, step: int, parts: list[Part], rate: float) -> Report:
        """Step `step`, counted from 0; messages and logs count from 1, as steps done."""
        self.module.train()
        update = self.updates.at(step)
        names = sorted(parts[0].counts)
        counts = dict(zip(names, self.ranks.sum([sum(p.counts[n] for p in parts) for n in names]), strict=True))
        weights = {name: update.weights.get(name, 1.0) for name in names}
        # Gradients are averaged over ranks, but the loss is a sum divided by the count over all of them: hence `world`.
        scales = {n: weights[n] * self.ranks.world / counts[n] for n in names if counts[n] > 0}
        passes = [update.losses(self.module, _moved(part.batch, self.ranks.device)) for part in parts]
        set_rate(self.optimizer, rate)
        report = Report()
        for turn in count():
            sums = self._forward_backward(step, turn, passes, parts, scales)
            if sums is None:
                break
            place = f"step {step + 1}, pass {turn + 1}, learning rate {rate:g}"
            totals, report.stop = self._totals(sums, parts, counts, place)
            for name in sums[0]:
                if counts[name]:
                    report.losses[f"{name}/{turn + 1}" if turn else name] = totals[name] / counts[name]
                    report.total += weights[name] * totals[name] / counts[name]
            self.way.settle()
            report.gradient_norm = clip(self.module.parameters(), self.config)
            if not math.isfinite(report.gradient_norm):
                raise TrainingError(f"the gradient is not finite though the loss is ({place})")
            if scales:  # else nothing was predicted anywhere, and decay alone is not a step
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        report.examples = list(getattr(update, "examples", ()))
        return report

    def _forward_backward(
        self, step: int, turn: int, passes: list[Iterator[Losses]], parts: list[Part], scales: Mapping[str, float]
    ) -> list[Losses] | None:
        """Pass `turn` of every part; None where the update has no more."""
        found: list[Losses] = []
        for index, (one, part) in enumerate(zip(passes, parts, strict=True)):
            seed_part(self.training.seed, step, turn, self.mine[index])
            predicted = {name: scale for name, scale in scales.items() if part.counts[name]}
            sums = self.way.run(one, predicted, last=part is parts[-1])
            if sums is None:
                # Not through the wrap: DDP would wait for a backward. The generators only run to their ends here.
                assert not found, "parts with different numbers of passes"
                assert not any(next(p, None) for p in passes), "parts with different numbers of passes"
                return None
            found.append(sums)
        return found

    def _totals(self, sums: list[Losses], parts: list[Part], counts: Counts, place: str) -> tuple[Counts, bool]:
        """Each objective's sum over parts and ranks, and whether some rank was asked to stop: one exchange. A sum that
        is not finite ends the run, on all ranks alike and before it has changed any weight."""
        if unknown := {name for losses in sums for name in losses} - counts.keys():
            raise TrainingError(f"the update has losses but no counts for {', '.join(sorted(unknown))}")
        mine = [{n: float(value) for n, value in s.items() if p.counts[n]} for s, p in zip(sums, parts, strict=True)]
        *totals, stop = self.ranks.sum(
            [*(sum(losses.get(name, 0.0) for losses in mine) for name in counts), float(self.wish.asked)]
        )
        named = dict(zip(counts, totals, strict=True))
        if names := [name for name, total in named.items() if not math.isfinite(total)]:
            bad = [p for p, losses in zip(parts, mine, strict=True) if not all(map(math.isfinite, losses.values()))]
            keys = ", ".join(key for part in bad for key in part.keys)
            where = f"; records: {keys}" if keys else "" if bad else "; in a part of another process"
            raise TrainingError(f"the loss of {', '.join(names)} is not finite ({place}{where})")
        return named, stop > 0


def _moved(batch: Any, device: torch.device) -> Any:
    return batch.to(device) if hasattr(batch, "to") else batch
