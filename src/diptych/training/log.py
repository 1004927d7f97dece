"""Logs of a run: RUN/metrics.jsonl, a progress bar or printed lines, and TensorBoard."""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress

from diptych.runtime.extras import requires_extra
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych.runtime.progress import SPARSE_SECONDS, NotebookBar, time_left, training_bar

METRICS = "metrics.jsonl"
LINE = 120  # maximum number of characters of a line about a step
SMOOTHED = 20  # number of logged steps over which the progress bar averages each loss
MOST_STEPS, MOST_VALUE = 10**12, 1e100  # a log line with a higher step or a larger value is treated as damaged


@dataclass(frozen=True)
class LogLine:
    """A line of the log: the numbers of a step."""

    step: int  # number of optimizer steps that the run has made
    # The latest value of each loss since the previous line, because objectives may alternate. "objective/2" is the loss
    # of a second pass. Rewards and caption lengths are included.
    losses: dict[str, float]
    total: float  # weighted sum of this step's losses
    lr: float
    gradient_norm: float
    samples_per_second: float
    validation: dict[str, float] | None = None
    examples: list[dict[str, Any]] | None = None  # captions sampled in this step, with their rewards
    epoch: float | None = None  # passes over the training samples that the run has made; None: the data has no epochs


class Log:
    """The log of a run, written by the first rank.

    `after`: the step that the run resumes from; lines of later steps are removed.
    """

    def __init__(self, folder: Path, after: int, steps: int, console: Console, tensorboard: bool = False) -> None:
        self.path, self.console, self.steps = folder / METRICS, console, steps
        folder.mkdir(parents=True, exist_ok=True)
        kept = _drop_lines(self.path, after)
        self.recent = deque(((read_line(text) or {}).get("losses", {}) for text in kept[-SMOOTHED:]), SMOOTHED)
        self.writer = _tensorboard(folder, after) if tensorboard else None
        self.file = self.path.open("a")
        self.bar: Progress | None = None
        if console.is_jupyter and not console.quiet:
            self.bar = NotebookBar(console)
        elif console.is_terminal:
            self.bar = training_bar(console)
        if self.bar is not None:
            self.task = self.bar.add_task("", total=steps, completed=after)
        self.shown_at, self.after, self.began = 0.0, after, time.monotonic()

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.writer is not None:
            self.writer.close()
        self.file.close()

    def write(self, line: LogLine) -> None:
        fields = {name: value for name, value in asdict(line).items() if value is not None}
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()
        if self.writer is not None:
            for name, value in _flat({name: value for name, value in fields.items() if name != "examples"}):
                self.writer.add_scalar(name, value, line.step)
        self.recent.append(line.losses)
        if self.bar is not None:
            self.bar.update(self.task, completed=line.step, description=_sentence(line, self.recent, LINE))
        elif time.monotonic() - self.shown_at > SPARSE_SECONDS or line.validation or line.step == self.steps:
            self.shown_at = time.monotonic()
            step, left = f"step {line.step}/{self.steps}  ", self._left(line.step)
            self.say(f"{step}{_sentence(line, self.recent, LINE - len(step) - len(left))}{left}")

    def _left(self, step: int) -> str:
        if step >= self.steps:
            return ""
        return f"  {time_left((self.steps - step) * (time.monotonic() - self.began) / (step - self.after))}"

    def say(self, text: str) -> None:
        """Print a line on the console."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def sync(self) -> None:
        """Write the log to the disk with fsync.

        This is called before a checkpoint is saved, so that the log never ends before the checkpoint's step.
        """
        self.file.flush()
        os.fsync(self.file.fileno())


def _sentence(line: LogLine, recent: Iterable[dict[str, float]], room: int) -> str:
    """Format the mean losses of recent steps, and the validation scores and speed of this step.

    `room`: maximum number of characters. Losses that do not fit are only counted, then scores.
    """
    known: dict[str, list[float]] = {}
    for losses in recent:
        for name, value in losses.items():
            known.setdefault(name, []).append(value)
    means = [f"{name} {sum(values) / len(values):.4f}" for name, values in known.items()]
    scores = [f"{name} {value:.1f}" for name, value in (line.validation or {}).items()]
    speed = f"{line.samples_per_second:.0f} samples/s"
    last = "".join(f"{part}  " for part in _fitting(scores, room - len(speed) - 2)) + speed
    return "  ".join([*_fitting(means, room - len(last) - 2), last])


def _fitting(parts: list[str], room: int) -> list[str]:
    """Return the first parts that fit into `room` characters, and the number of the others. Return [] if none fits."""
    for shown in range(len(parts), 0, -1):
        kept = parts[:shown] + [f"and {len(parts) - shown} more"] * (shown < len(parts))
        if len("  ".join(kept)) <= room:
            return kept
    return []


def _drop_lines(path: Path, after: int) -> Sequence[str]:
    """Remove damaged lines and lines of steps after `after` from the file, atomically. Return the other lines."""
    if not path.exists():
        return ()
    kept = [text for text in _texts(path) if (line := read_line(text)) is not None and line["step"] <= after]
    write_atomically(path, "".join(f"{text}\n" for text in kept).encode())
    return kept


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the logged steps of a file, without damaged lines. Return [] if there is no file."""
    return [line for text in _texts(path) if (line := read_line(text)) is not None] if path.is_file() else []


def read_line(text: str) -> dict[str, Any] | None:
    """Parse a log line to {field: number, or dict of numbers}. Return None if it is damaged."""
    try:
        line = parse_json(text)
    except ValueError:
        return None
    step = line.get("step") if isinstance(line, dict) else None
    if not isinstance(step, int) or not 0 <= step <= MOST_STEPS:
        return None
    groups = {name: _numbers(line[name]) for name in ("losses", "validation") if isinstance(line.get(name), dict)}
    return _numbers(line) | groups


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, int | float) and abs(value) < MOST_VALUE}


def _texts(path: Path) -> list[str]:
    return text_of(path, "replace").splitlines()


def flat_line(line: LogLine) -> dict[str, Any]:
    """Return the numbers of a line as a flat dict. Keys are step, total, lr, losses/NAME, validation/NAME, ..."""
    return flat_numbers({name: value for name, value in vars(line).items() if name != "examples"})


def flat_numbers(line: Mapping[str, Any]) -> dict[str, Any]:
    """Like `flat_line`, for a line of `read_lines`."""
    return {"step": line["step"], **dict(_flat({name: value for name, value in line.items() if value is not None}))}


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    return [
        pair
        for name, value in fields.items()
        if name != "step"
        for pair in (_flat(value, f"{prefix}{name}/") if isinstance(value, Mapping) else [(prefix + name, value)])
    ]


def _tensorboard(folder: Path, after: int) -> Any:
    with requires_extra("training.tensorboard=true (metrics.jsonl has the same numbers without it)", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(folder / "tensorboard", purge_step=after + 1)


def warn(console: Console, warnings: Iterable[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)
