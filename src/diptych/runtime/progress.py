"""Progress bars with count, speed and time left. Without a terminal, lines are printed at growing intervals."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import escape
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.progress import Progress, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from diptych.runtime.terminal import make_console

# If the output is not a terminal, the first line comes after 10 s; the time between lines doubles up to 60 s.
SPARSE_SECONDS = 10.0
SPARSEST_SECONDS = 60.0
NOTEBOOK_SECONDS = 0.3  # seconds between two updates of a bar in a notebook
SPEED_SECONDS = 600.0  # the speed is a mean over this time: batches and log lines may be minutes apart


class _Speed(rich_progress.ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.0f} {self.unit}/s" if speed else "")


class _Timed(Progress):
    """Knows the time left from the first batch on. rich would need two within 30 seconds."""

    def __init__(self, *columns: Any, **settings: Any) -> None:
        super().__init__(*columns, speed_estimate_period=SPEED_SECONDS, **settings)

    def add_task(self, *given: Any, **fields: Any) -> TaskID:
        task_id = super().add_task(*given, **fields)
        Progress.advance(self, task_id, 0)
        return task_id


class _Lines(_Timed):
    """Prints lines such as `captioning 320/1000 pictures, 2 min left, until 14:32` to a log, at growing intervals."""

    def __init__(self, unit: str, console: Console) -> None:
        super().__init__(console=console, disable=True)
        self.unit, self._began, self._next, self._wait = unit, time.monotonic(), SPARSE_SECONDS, SPARSE_SECONDS

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        passed = time.monotonic() - self._began
        if passed < self._next:
            return
        self._wait = min(2 * self._wait, SPARSEST_SECONDS)
        self._next = passed + self._wait
        task = self._tasks[task_id]
        left = "" if task.time_remaining is None else f", {time_left(task.time_remaining)}"
        tell(self.console, f"{task.description} {task.completed:.0f}/{task.total or 0:.0f} {self.unit}{left}")


class NotebookBar(_Timed):
    """A bar in the output of a notebook cell, with count and time left. It is updated in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, disable=True)
        self._output: Any = None
        self._drawn = 0.0

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._draw(self._tasks[task_id])

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._draw(self._tasks[task_id])

    def _draw(self, task: Task) -> None:
        from IPython import display

        ended = task.completed >= (task.total or 0)
        if time.monotonic() - self._drawn < NOTEBOOK_SECONDS and not ended:
            return
        self._drawn = time.monotonic()
        left = "" if ended or task.time_remaining is None else f", {time_left(task.time_remaining)}"
        count = f"{task.completed:.0f}/{task.total or 0:.0f}{left}"
        element = f'<progress value="{task.completed}" max="{task.total}"></progress>'
        drawn = display.HTML(f"{element} {count} {escape(task.description)}")  # type: ignore[no-untyped-call]
        if self._output is None:
            self._output = display.display(drawn, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._output.update(drawn)


def bar(unit: str, console: Console | None = None) -> Progress:
    """Return a progress bar of the package rich, as a context manager. `unit`: a noun such as `images`."""
    console = console or make_console()
    if console.is_jupyter and not console.quiet:
        return NotebookBar(console)
    if not console.is_terminal:
        return _Lines(unit, console)
    columns = (TextColumn("{task.description}"), rich_progress.BarColumn(), rich_progress.MofNCompleteColumn())
    left = rich_progress.TimeRemainingColumn()
    return _Timed(*columns, _Speed(unit), left, console=console, transient=True)


@contextmanager
def advancing(what: str, of: int, unit: str = "pictures") -> Iterator[Callable[[int], object]]:
    """Show a progress bar during the `with` block, and yield a function that advances it by a count."""
    with bar(unit) as progress:
        yield partial(progress.advance, progress.add_task(what, total=of))


def training_bar(console: Console) -> Progress:
    """Return a progress bar for training on a terminal."""
    count = rich_progress.MofNCompleteColumn(table_column=Column(no_wrap=True))
    left = rich_progress.TimeRemainingColumn(table_column=Column(no_wrap=True))
    scores = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TextColumn("training"), rich_progress.BarColumn(12), count, left, scores)
    return Progress(*columns, console=console, expand=True, speed_estimate_period=SPEED_SECONDS)


def time_left(seconds: float) -> str:
    """Return a text such as `3 min left, until 14:32`, in local time."""
    units = {172_800: (".1f", 86_400, "days"), 3600: (".1f", 3600, "h"), 90: (".0f", 60, "min")}
    form, unit, name = next((one for least, one in units.items() if seconds >= least), (".0f", 1, "s"))
    until = time.strftime("%H:%M" if seconds < 86_400 else "%d %b %H:%M", time.localtime(time.time() + seconds))
    return f"{seconds / unit:{form}} {name} left, until {until}"


def tell(console: Console, message: str) -> None:
    """Print a message unchanged, in the first process of a run. rich would read brackets as markup and wrap lines."""
    if os.environ.get("RANK", "0") == "0":
        console.print(message, markup=False, highlight=False, soft_wrap=True)
