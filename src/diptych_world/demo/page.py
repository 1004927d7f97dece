"""Build the demo's report from the scores, logs and records of its stages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diptych.runs.reports.gallery import extremes, shown
from diptych.runs.reports.page import CHOSEN, report_of
from diptych.runs.reports.report import Headline, Report, TimedStage
from diptych.tasks import TASKS
from diptych.tasks.scores import Score, Scores
from diptych_world.demo.findings import find
from diptych_world.demo.gallery import words
from diptych_world.demo.measure import MeasuredScores

TITLE = "Diptych: a drawn world, learnt"
PICTURES = 18  # the gallery shows this many images


def demo_report(
    measured: MeasuredScores,
    class_names: Sequence[str],
    runs: Mapping[str, Mapping[str, Path]],
    seconds: Mapping[str, float],
    memory_mib: Mapping[str, float],
    configuration: Mapping[str, object],
    notes: Mapping[str, Mapping[str, str]],
    title: str = TITLE,
) -> Report:
    """Return the contents of the report; `write_report` writes them.

    The image gallery shows predictions of the last arm.

    `runs`: task (or "detector", "pretrain") -> arm -> folder of the run. `notes`: task -> arm -> a sentence on its
    training. `seconds` and `memory_mib`: stage -> duration, peak memory.
    """
    last = {task: list(arms.items())[-1] for task, arms in measured.scores.items()}
    rows = [row for _, scores in last.values() for row in scores.rows]
    pictures = shown(measured.records, class_names, extremes(rows, PICTURES), words)
    speaker = " and ".join(dict.fromkeys(f"the arm “{arm}”" for arm, _ in last.values()))
    learns = " and to ".join(TASKS[task].learns for task in measured.scores)
    opening = f"A detector trained on drawn scenes, and a model that learns to {learns}."
    made = report_of(title, opening, measured.scores, pictures, runs, configuration, notes, measured.gains)
    return replace(
        made,
        headlines=tuple(_headline(task, measured.scores[task], gain) for task, gain in measured.gains.items()),
        gallery_text=f"{len(pictures)} test images. {CHOSEN} Boxes and class names are the detector's, texts are from "
        f"{speaker}. A wavy underline marks an object that is not in the image.",
        findings=find(measured.records, class_names, rows),
        stages=tuple(TimedStage(name, time, memory_mib.get(name)) for name, time in seconds.items()),
    )


def _headline(task: str, arms: Mapping[str, Scores], gain: Score) -> Headline:
    first, second = list(arms)[:2]
    interval = "" if gain.low is None or gain.high is None else f", 95% interval {gain.low:+.1f} to {gain.high:+.1f}"
    values = ", ".join(f"{arm} {arms[arm][gain.name].value:.1f}" for arm in (second, first))
    figure = format(gain.value, "+.0f" if abs(gain.value) >= 1 else "+.1f")
    return Headline(f"{figure} {gain.name}", f"{TASKS[task].title}: {values}{interval}")
