"""The verb that draws how runs went: plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.app import app


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, drawn beside each other.")],
    out: Annotated[Path, typer.Option(help="File to write: an HTML page, or an SVG where it ends in .svg.")] = Path(
        "plot.html"
    ),
    smooth: Annotated[
        int, typer.Option(min=1, help="Logged steps over which losses are averaged; 1 shows each by itself.")
    ] = 20,
) -> None:
    """Draw the losses, validation scores and learning rates of runs."""
    from diptych.runs.plots import write_plot

    drawn = write_plot(runs, out, smooth)
    print(f"{len(drawn)} charts in {out}: {', '.join(chart.title for chart in drawn)}")
