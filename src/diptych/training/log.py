"""What a run tells: RUN/metrics.jsonl for programs, a bar or sparse lines for people, TensorBoard where asked for."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from diptych.extras import wanted

METRICS = "metrics.jsonl"
SPARSE_SECONDS = 10.0  # between lines where there is no terminal


@dataclass(frozen=True)
class Line:
    """One logged step."""

    step: int  # steps done
    losses: dict[str, float]  # per thing predicted; a second pass is called objective/2; rewards and lengths too
    total: float  # weighted
    lr: float
    gradient_norm: float
    samples_per_second: float
    validation: dict[str, float] | None = None
    examples: list[dict[str, Any]] | None = None  # some captions drawn in this step, with their rewards


class Log:
    """Written by one rank. `after` is the step resumed from: later lines are steps that will be done again."""

    def __init__(self, folder: Path, after: int, steps: int, console: Console, tensorboard: bool = False) -> None:
        self.path, self.console, self.steps = folder / METRICS, console, steps
        folder.mkdir(parents=True, exist_ok=True)
        _drop_lines(self.path, after)
        self.writer = _tensorboard(folder, after) if tensorboard else None
        self.file = self.path.open("a")
        self.bar: Progress | None = None
        if console.is_terminal:
            columns = TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self.bar = Progress(*columns, TextColumn("{task.description}"), console=console)
            self.task = self.bar.add_task("", total=steps, completed=after)
        self.shown_at = 0.0

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.writer is not None:
            self.writer.close()
        self.file.close()

    def write(self, line: Line) -> None:
        fields = {name: value for name, value in asdict(line).items() if value is not None}
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()
        if self.writer is not None:
            for name, value in _flat({name: value for name, value in fields.items() if name != "examples"}):
                self.writer.add_scalar(name, value, line.step)
        text = _sentence(line)
        if self.bar is not None:
            self.bar.update(self.task, completed=line.step, description=text)
        elif time.monotonic() - self.shown_at > SPARSE_SECONDS or line.validation or line.step == self.steps:
            self.shown_at = time.monotonic()
            self.say(f"step {line.step}/{self.steps}  {text}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def sync(self) -> None:
        """To the disk, so that no checkpoint is ahead of its log even after a power cut."""
        self.file.flush()
        os.fsync(self.file.fileno())


def _sentence(line: Line) -> str:
    losses = "  ".join(f"{name} {value:.4f}" for name, value in line.losses.items())
    scores = "".join(f"  {name} {value:.4f}" for name, value in (line.validation or {}).items())
    return f"{losses}{scores}  {line.samples_per_second:.0f} samples/s"


def _drop_lines(path: Path, after: int) -> None:
    """Keeps whole lines of steps up to `after`; the file is replaced at once or not at all."""
    if not path.exists():
        return
    kept = [text for text in path.read_text().splitlines() if _step_of(text) <= after]
    aside = path.with_suffix(".aside")
    with aside.open("w") as file:
        file.writelines(text + "\n" for text in kept)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _step_of(text: str) -> float:
    try:
        return float(json.loads(text)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line that a kill cut short


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    return [
        pair
        for name, value in fields.items()
        if name != "step"
        for pair in (_flat(value, f"{prefix}{name}/") if isinstance(value, Mapping) else [(prefix + name, value)])
    ]


def _tensorboard(folder: Path, after: int) -> Any:
    with wanted("training.tensorboard=true (metrics.jsonl has the same numbers without it)", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(folder / "tensorboard", purge_step=after + 1)
