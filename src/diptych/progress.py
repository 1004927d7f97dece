"""The one progress bar: how many, how fast, how long still. Silent where nobody watches."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from diptych.terminal import make_console


class _Speed(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.0f} {self.unit}/s" if speed else "")


def bar(unit: str, console: Console | None = None) -> Progress:
    """A context manager; `add_task` and `advance` are rich's own."""
    console = console or make_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Speed(unit), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def tell(console: Console, message: str) -> None:
    """As it is: names in brackets are no markup, and a path is not broken in two."""
    console.print(message, markup=False, highlight=False, soft_wrap=True)
