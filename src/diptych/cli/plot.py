"""The verb `plot`: charts of runs."""

from pathlib import Path

from typer import Argument, Option

from diptych.cli.app import app


@app.command()
def plot(
    runs: list[Path] = Argument(metavar="RUN", help="Folders of runs, drawn next to each other."),
    out: Path = Option(Path("plot.html"), help="File to write: an HTML page, or an SVG where it ends in .svg."),
    smooth: int = Option(20, min=1, help="Logged steps over which losses are averaged; 1: no averaging."),
) -> None:
    """Draw the losses, validation scores and learning rates of runs."""
    from diptych.runs.plots import write_plot

    drawn = write_plot(runs, out, smooth)
    print(f"{len(drawn)} charts in {out}: {', '.join(chart.title for chart in drawn)}")
