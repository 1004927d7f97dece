"""Tables of scores for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from diptych.runtime.errors import counted
from diptych.tasks import find_task
from diptych.tasks.scores import Score, Scores


def score_table(scores: Scores) -> Group:
    """Return a table of the scores, blind baselines and ceilings, with the notes below it."""
    of = f"{counted(scores.items, find_task(scores.task).scoring.noun)} of {counted(scores.pictures, 'images')}"
    covered = "" if scores.coverage == 1 else f", {100 * scores.coverage:.1f}% of the queries"
    table = Table()
    table.add_column("score", no_wrap=True)
    columns: tuple[str, ...] = ("value", "95% interval", "blind", "ceiling", "of ceiling")
    if all(score.ceiling is None for score in scores.scores):
        columns = columns[:3]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for score in scores.scores:
        table.add_row(*score_row(score)[: len(columns) + 1])
    warning = [Text(f"warning: {scores.warning}", style="yellow")] if scores.few else []
    seen = (
        [Text(scores.trained_on.text, style="yellow" if scores.trained_on.exact else "")] if scores.trained_on else []
    )
    return Group(
        *seen, Text(of + covered, style="bold"), *warning, table, *(Text(note, style="dim") for note in scores.notes)
    )


def score_row(score: Score) -> tuple[str, ...]:
    interval = "" if score.low is None or score.high is None else f"{score.low:.1f} to {score.high:.1f}"
    # With few images, the ceiling of BLEU is almost 0; a percentage of it would be meaningless.
    share = f"{100 * score.value / score.ceiling:.0f}%" if score.ceiling and score.ceiling >= 0.05 else ""
    return (score.name, f"{score.value:.1f}", interval, figure(score.blind), figure(score.ceiling), share)


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
