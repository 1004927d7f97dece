"""The training loop. It trains any module with updates and batches, and does not depend on images or texts.

The data, update and dropout of a micro-batch depend only on (seed, step, micro-batch). So checkpoints need no random
state, and a resumed run gives the same result as an uninterrupted run. A sample's masking does not depend on its
micro-batch. Without dropout, N processes give the same result as one process. With dropout, they give the same result
as one process that accumulates N micro-batches.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from diptych.runtime.devices import Precision, autocast, choose_device, torch_unchanged
from diptych.runtime.errors import CheckpointError, RecipeError, Stopped, TrainingError, counted, nearest
from diptych.runtime.terminal import make_console
from diptych.training import checkpoint as checkpoints
from diptych.training.auto import chosen_precision, with_auto_micro_batch
from diptych.training.averages import Ema, named_tensors, put_tensors
from diptych.training.checkpoint import Checkpoint
from diptych.training.config import OptimizerConfig, TrainingConfig
from diptych.training.distribution import distribute, gather, sync_buffers
from diptych.training.feeding import Batches, BatchPart, Sender, Updates, by_step, prefetched_parts
from diptych.training.log import Log, LogLine, flat_line, warn
from diptych.training.optimizer import build_optimizer, highest_rate, learning_rate
from diptych.training.ranks import Ranks, join_ranks
from diptych.training.sharding import place
from diptych.training.step import PendingStep, Stepper, StepReport
from diptych.training.stopping import StopRequest

CHECKPOINTS, WEIGHTS = "checkpoints", "weights.safetensors"
READ_LATE = ("cuda",)  # types of devices on which a step's numbers are read one step later (`PendingStep`)
Validate = Callable[[nn.Module, int], dict[str, float]]
OnLog = Callable[[dict[str, Any]], object]  # called with each log line; if it returns False, the run ends


@dataclass(frozen=True)
class Validation:
    """The scores of a validation, by name."""

    step: int
    scores: dict[str, float]


@dataclass(frozen=True)
class Result:
    """The result of a run: the final weights and the validation scores.

    The final weights are those of the best step, the mean over the best steps, the EMA, or those of the last step. They
    are in the file `weights` and, except with FSDP2, in the module."""

    weights: Path
    step: int  # number of optimizer steps made
    best_step: int | None
    best_score: float | None
    history: tuple[Validation, ...]
    stopped_early: bool
    ended: bool = False  # True: `on_log` ended the run


def train(
    module: nn.Module, updates: Updates, batches: Batches[Any], *, optimizer: OptimizerConfig, training: TrainingConfig,
    folder: Path, validate: Validate | None = None, score: str | None = None, fingerprint: str = "",
    console: Console | None = None, begin: Callable[[], None] | None = None, on_log: OnLog | None = None,
) -> Result:  # fmt: skip
    """Train `module` in place. If `folder` has checkpoints, resume from the latest.

    `validate(module, step)` returns scores; training maximises the value named `score`. Resuming requires the same
    `fingerprint`, such as a hash of the recipe. On the first rank, `begin` is called after all checks, before files are
    written, and `on_log` with each log line (`flat_line`); if it returns False, the run ends. The caller's number of
    threads and random state are not changed. Raises Stopped after SIGTERM or Ctrl-C. Raises TrainingError,
    CheckpointError or RecipeError if the run fails.
    """
    if (training.validate_every is not None) != (validate is not None and score is not None):
        raise RecipeError("`training.validate_every`, `validate` and `score` belong together: pass all or none")
    training = training.in_steps(getattr(batches, "steps_per_epoch", None))
    with torch_unchanged(), join_ranks(choose_device(training.device)) as ranks:
        if training.threads is not None:
            torch.set_num_threads(training.threads)
        console = console or make_console()
        run = TrainerRun(
            module.to(ranks.device), optimizer, training, folder, validate, score or "", fingerprint, ranks, on_log
        )
        run.prepare(updates, batches)
        if begin is not None and ranks.first:
            begin()
        return run.go(console)


@dataclass
class TrainerRun:
    """The state and the loop of a run, on one rank."""

    module: nn.Module
    config: OptimizerConfig
    training: TrainingConfig
    folder: Path
    validate: Validate | None
    score: str
    fingerprint: str
    ranks: Ranks
    on_log: OnLog | None = None
    step: int = 0  # number of optimizer steps made
    saved: int = 0  # step of the last checkpoint that was saved
    history: list[Validation] = field(default_factory=list)
    losses: dict[str, float] = field(default_factory=dict)  # latest value of each loss since the previous log line
    unread: list[PendingStep] = field(default_factory=list)
    logged: tuple[int, float] = (0, 0.0)  # step and time.monotonic() of the previous log line, or of the start
    ended: bool = False  # True: `on_log` ended the run

    def prepare(self, updates: Updates, batches: Batches[Any]) -> None:
        """Prepare precision, distribution over processes, optimizer and micro-batch size. Raises RecipeError."""
        training, ranks = self.training, self.ranks
        if (parts := training.accumulation(ranks.world) * ranks.world) > training.batch:
            raise RecipeError(f"training.batch={training.batch} is less than {parts} micro-batches per step: raise it")
        # Ranks on different processors could choose different precisions, so the first rank's choice is used.
        self.precision: Precision = ranks.from_first(chosen_precision(training, self.module, ranks.device))
        self.distributed = distribute(self.module, ranks, training.distributed, self.precision, training.compile)
        self.optimizer = build_optimizer(self.module, self.config, ranks.device)
        self.ema = Ema(self.module, training.ema) if training.ema is not None else None
        self.stop = StopRequest()
        late = ranks.device.type in READ_LATE
        self.stepper = with_auto_micro_batch(
            Stepper(
                self.module, updates, batches, self.distributed, self.optimizer, self.config, training, ranks,
                self.stop, Sender(ranks.device), late,
            )
        )  # fmt: skip

    @property
    def root(self) -> Path:
        return self.folder / CHECKPOINTS

    # ---- training loop -------------------------------------------------------------------------------

    def go(self, console: Console) -> Result:
        resumed_from = self._resume(console)
        try:
            with ExitStack() as stack:
                stack.enter_context(self.stop)
                settings = self.folder, self.step, self.training.steps, console, self.training.tensorboard
                log = stack.enter_context(Log(*settings)) if self.ranks.first else None
                mine = self.stepper.mine
                places = ((step, part) for step in range(self.step, self.training.steps) for part in mine)
                ahead = prefetched_parts(self.stepper.maker, places, len(mine), self.training, self.ranks.device)
                parts = stack.enter_context(ahead)
                if log is not None:
                    log.say(self._opening(resumed_from))
                self._steps(parts, log)
        except OSError as error:
            if not checkpoints.disk_is_full(error):
                raise
            raise TrainingError(
                f"the disk of {self.folder} is full ({error.filename or 'the log'} could not be written); "
                f"{self._kept('complete')}: free space and run the same command again"
            ) from error
        except RuntimeError as error:
            if not self.ranks.lost(error):
                raise
            raise TrainingError(
                f"another process of this run has ended; its output gives the reason. {self._kept('kept').capitalize()}"
                ": run the same command again"
            ) from error
        return self._finish(console)

    def _kept(self, state: str) -> str:
        return f"the checkpoint of step {self.saved} is {state}" if self.saved else "no checkpoint was saved yet"

    def _steps(self, parts: Iterator[BatchPart], log: Log | None) -> None:
        self.logged = self.step, time.monotonic()
        of_steps = by_step(parts, len(self.stepper.mine), ahead=self.ranks.device.type == "cuda")
        while not self._finished():
            rate = learning_rate(self.config, self.step, self.training.steps, self.training.batch)
            mine, following = next(of_steps)
            for part in mine:  # unreadable records that loader processes found are added to those of this process
                getattr(self.stepper.batches, "corrupt", {}).update(part.left_out)
            try:
                report = self._step(mine, rate, following)
            except TrainingError as error:
                raise TrainingError(f"{error}. {self._advice()}") from error
            if self.ema is not None:
                self.ema.update(self.step)
            scores = self._validate() if self._due(self.training.validate_every) else None
            if scores is not None or self._due(self.training.log_every):
                self._log(log, report, rate, scores)
            if scores is not None or self._due(self.training.checkpoint_every) or report.stop or self.ended:
                self._save(log)
            if report.stop and not self._finished():
                raise Stopped(
                    f"stopped after step {self.step} of {self.training.steps}; the same command resumes {self.folder}"
                )

    def _step(self, parts: list[BatchPart], rate: float, following: BatchPart | None) -> StepReport:
        self.unread.append(self.stepper.run(self.step, parts, rate, following))
        self.step += 1
        training = self.training
        report = self._read(
            any(map(self._due, (training.log_every, training.validate_every, training.checkpoint_every)))
        )
        if report.stop:
            self._read(all_of_it=True)
        return report

    def _log(self, log: Log | None, report: StepReport, rate: float, scores: dict[str, float] | None) -> None:
        """Write a line on the first rank, the one with a log. `on_log` may end the run, on all ranks."""
        goes_on = True
        if log is not None:
            (done, since), now = self.logged, time.monotonic()
            speed = (self.step - done) * self.training.batch / max(now - since, 1e-9)
            numbers = (self.step, self.losses, report.total, rate, report.gradient_norm, speed)
            line = LogLine(*numbers, scores, report.examples or None, self.stepper.epoch(self.step))
            log.write(line)
            self.logged, self.losses = (self.step, now), {}
            goes_on = self.on_log is None or self.on_log(flat_line(line)) is not False
        if self.on_log is not None:
            self.ended = self.ranks.from_first(not goes_on)

    def _read(self, all_of_it: bool) -> StepReport:
        """Read the numbers of finished steps (with `all_of_it`, of the current step too). Return the latest report."""
        report = StepReport()
        while len(self.unread) > (self.stepper.late and not all_of_it):
            report = self.unread.pop(0).read()
            self.losses |= report.losses
        return report

    def _advice(self) -> str:
        kept = self._kept("kept").capitalize()
        return f"{kept}. Try a lower learning rate, a longer warm-up or clipping, or check the records"

    def _due(self, every: int | str | None) -> bool:
        return isinstance(every, int) and (self.step % every == 0 or self.step == self.training.steps)

    def _finished(self) -> bool:
        return self.step >= self.training.steps or self.ended or self._gave_up()

    # ---- validation ----------------------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        assert self.validate is not None
        self.module.eval()
        averaged = self.ema.applied() if self.ema is not None else nullcontext()
        with averaged, self.distributed.unsharded(), autocast(self.ranks.device, self.precision):
            # Every rank validates, because layers may be sharded over ranks. The scores of the first rank are used.
            scores: dict[str, float] = self.ranks.from_first(self.validate(self.module, self.step))
        if self.score not in scores:
            raise RecipeError(f"validation returned no {self.score!r}; {nearest(self.score, scores)}")
        self.history.append(Validation(self.step, scores))
        return scores

    def _ranking(self) -> list[Validation]:
        """Return the validations, best first.

        Of validations with equal scores, the earliest comes first, because later weights are more overfitted.
        """

        def badness(validation: Validation) -> tuple[float, int]:
            value = validation.scores[self.score]
            return (math.inf if math.isnan(value) else -value), validation.step

        return sorted(self.history, key=badness)

    def _gave_up(self) -> bool:
        patience = self.training.patience
        if patience is None or not self.history:
            return False
        best = self._ranking()[0]
        return sum(v.step > best.step for v in self.history) >= patience

    # ---- checkpoints ---------------------------------------------------------------------------------

    def _save(self, log: Log | None) -> None:
        if self.saved == self.step:
            return
        sync_buffers(self.module, self.ranks)
        tensors = {"model": gather(named_tensors(self.module), self.ranks)}
        tensors["optimizer"] = gather(self._optimizer_tensors(), self.ranks)
        if self.ema is not None:
            tensors["ema"] = gather(named_tensors(self.module) | self.ema.average, self.ranks)
        state = {
            "steps": self.training.steps,
            "parts": self.stepper.parts,
            "fingerprint": self.fingerprint,
            "precision": self.precision,
            "history": [asdict(v) for v in self.history],
            "losses": self.losses,  # losses since the last log line
        }
        self._on_first(lambda: self._write(log, Checkpoint(self.step, state, tensors)))
        self.saved = self.step

    def _on_first(self, write: Callable[[], None]) -> None:
        """Call `write` on the first rank; the others wait. If it raises TrainingError, all ranks raise this error."""
        trouble = None
        try:
            if self.ranks.first:
                write()
        except TrainingError as error:
            trouble = str(error)
        if (trouble := self.ranks.from_first(trouble)) is not None:
            raise TrainingError(trouble)

    def _write(self, log: Log | None, checkpoint: Checkpoint) -> None:
        if log is not None:
            log.sync()
        checkpoints.save(self.root, checkpoint)
        best = [v.step for v in self._ranking()[: self.training.average_best]]
        checkpoints.prune(self.root, [*checkpoints.steps_in(self.root)[-self.training.keep :], *best])

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        return {
            f"{name}.{key}": value
            for name, p in self.module.named_parameters()
            for key, value in self.optimizer.state.get(p, {}).items()
            if isinstance(value, Tensor)
        }

    def _resume(self, console: Console) -> int | None:
        if self.ranks.first:
            saved, warnings = checkpoints.load_latest(self.root)
            warn(console, warnings)
            step = self.ranks.from_first(saved.step if saved is not None else None)
        else:
            step = self.ranks.from_first(None)
            saved = checkpoints.load(checkpoints.folder_of(self.root, step)) if step is not None else None
        if saved is None:
            return None
        if saved.state["fingerprint"] != self.fingerprint:
            raise CheckpointError(
                f"{self.root} belongs to another recipe, or started from other weights: choose another folder"
            )
        if self.training.precision == "auto":  # a resumed run keeps its precision, even on another machine
            self.precision = self.distributed.pass_.precision = saved.state.get("precision", self.precision)
        put_tensors(saved.tensors["model"], named_tensors(self.module), str(self.root))
        self._put_optimizer(saved.tensors["optimizer"])
        if self.ema is not None:
            average = {name: t for name, t in saved.tensors["ema"].items() if name in self.ema.average}
            put_tensors(average, self.ema.average, str(self.root))
        self.history = [Validation(**v) for v in saved.state["history"]]
        self.losses = saved.state.get("losses", {})
        self.step = self.saved = saved.step
        return saved.step

    def _put_optimizer(self, tensors: dict[str, Tensor]) -> None:
        named = dict(self.module.named_parameters())
        by_name: dict[str, dict[str, Tensor]] = {}
        for path, value in tensors.items():
            name, _, key = path.rpartition(".")
            parameter = named[name]
            by_name.setdefault(name, {})[key] = place(value, parameter) if value.ndim or not parameter.ndim else value
        names = {p: name for name, p in named.items()}
        order = [names[p] for group in self.optimizer.param_groups for p in group["params"]]
        states = {index: by_name[name] for index, name in enumerate(order) if name in by_name}
        self.optimizer.load_state_dict({"state": states, "param_groups": self.optimizer.state_dict()["param_groups"]})

    def _finish(self, console: Console) -> Result:
        ranking = [v.step for v in self._ranking()]
        group = "model" if self.ema is None else "ema"
        mean, best, warnings = checkpoints.mean_of(self.root, ranking, self.training.average_best, group)
        warn(console, warnings if self.ranks.first else [])
        if best:
            put_tensors(mean, named_tensors(self.module), str(self.root))
        elif self.ema is not None:
            put_tensors({n: t.detach() for n, t in self.ema.average.items()}, self.ema.parameters, "the average")
        self.module.eval()
        best = best if self.training.average_best else [self.step]
        weights = gather(named_tensors(self.module), self.ranks)
        self._on_first(lambda: checkpoints.save_weights(self.folder / WEIGHTS, weights))
        return Result(
            weights=self.folder / WEIGHTS,
            step=self.step,
            best_step=best[0] if best else None,
            best_score=next((v.scores[self.score] for v in self.history if v.step in best[:1]), None),
            history=tuple(self.history),
            stopped_early=self.step < self.training.steps,
            ended=self.ended,
        )

    # ---- first log line ------------------------------------------------------------------------------

    def _opening(self, resumed_from: int | None) -> str:
        config, training = self.config, self.training
        rate = f"learning rate {highest_rate(config, training.batch):g}"
        if config.lr_times_batch:
            rate += f" = {config.lr:g} x batch {training.batch}"
        start = "" if resumed_from is None else f", resuming after step {resumed_from}"
        if self._gave_up():
            start += f", where it stopped ({counted(training.patience or 0, 'validations')} without a better score; "
            start += "raise training.patience)"
        parts = f" in {self.stepper.parts} micro-batches" if self.stepper.parts > 1 else ""
        return (
            f"{config.kind}, {rate}, {config.schedule}; {counted(training.steps, 'steps')} of "
            f"{counted(training.batch, 'samples')}{parts}, {self.precision} on {self.ranks.device}{start}"
        )
