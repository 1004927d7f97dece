"""The verb `plot`: draw charts of training runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from diptych.cli.outputs import OutFile


def plot(
    runs: list[Path] = Argument(metavar="RUN", help="Folders of runs, drawn next to each other."),
    out: Annotated[Path, OutFile()] = Option(
        Path("plot.html"), help="File to write: an HTML page, or by its ending an .svg or a .csv."
    ),
    smooth: int = Option(20, min=1, help="Logged steps over which losses are averaged; 1: no averaging."),
    log: bool = Option(False, "--log", help="Draw losses on a logarithmic axis."),
    by_epoch: bool = Option(False, "--by-epoch", help="Horizontal axis in epochs, not in steps."),
) -> None:
    """Draw the losses, validation scores and learning rates of runs."""
    from diptych.runs.plots import write_plot

    drawn = write_plot(runs, out, smooth, log, "epoch" if by_epoch else "step")
    print(f"{len(drawn)} charts in {out}: {', '.join(chart.title for chart in drawn)}")
