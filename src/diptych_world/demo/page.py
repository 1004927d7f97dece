"""Build the demo's report from the scores, logs, records and predictions of its stages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diptych.core import Record
from diptych.runs.reports.charts import chart
from diptych.runs.reports.report import Arm, Chart, Comparison, Headline, Report, TimedStage
from diptych.tasks import CAPTION, TASKS, TaskSpec
from diptych.tasks.answers import answered_questions
from diptych.tasks.scores import Score, Scores
from diptych_world.demo.findings import find
from diptych_world.demo.gallery import STORYBOOK, evenly, shown
from diptych_world.demo.measure import MeasuredScores

TITLE = "Diptych: a drawn world, learnt"
PICTURES = 12  # the gallery shows this many images


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
    last = {task: list(by_arm.items())[-1] for task, by_arm in measured.predictions.items()}
    specs = [TASKS[task] for task in last]
    captions = last[CAPTION.name][1] if CAPTION.name in last else {}
    answers: dict[str, str] = {}
    for spec in specs:
        if spec.scoring.answered is not None:
            answers |= spec.scoring.answered(last[spec.name][1])
    records = [_with_queries(record, specs) for record in measured.records]
    training = answered_questions([_with_queries(record, specs) for record in measured.training])
    everything = shown(records, class_names, captions, answers, STORYBOOK)
    scored = [replace(one, answers=()) for one in everything if one.cider is not None]
    speaker = " and ".join(dict.fromkeys(f"the arm “{arm}”" for arm, _ in last.values()))
    return Report(
        title=title,
        lead=_lead(measured.scores),
        headlines=tuple(_headline(task, measured.scores[task], gain) for task, gain in measured.gains.items()),
        configuration={name: str(value) for name, value in configuration.items()},
        comparisons=tuple(
            _comparison(task, arms, notes.get(task, {}), measured.gains.get(task))
            for task, arms in measured.scores.items()
        ),
        charts=tuple(_charts(runs)),
        gallery=tuple(evenly(everything, PICTURES)),
        gallery_text=f"Test images at equal intervals, not hand-picked. Boxes and class names are the "
        f"detector's, texts are from {speaker}. A wavy underline marks an object that is not in the image.",
        findings=find(records, class_names, captions, answers, training, STORYBOOK),
        worst=tuple(sorted(scored, key=lambda one: (one.cider or 0.0, one.key))[:6]),
        stages=tuple(TimedStage(name, time, memory_mib.get(name)) for name, time in seconds.items()),
    )


def _with_queries(record: Record, tasks: Sequence[TaskSpec]) -> Record:
    """Add the queries of other tasks, such as statements, to the record's questions, so that the gallery shows them."""
    queries = [spec.scoring.questions for spec in tasks]
    more = [question for query in queries if query is not None for question in query(record)]
    return replace(record, questions=tuple(dict.fromkeys((*record.questions, *more))))


def _lead(scores: Mapping[str, Mapping[str, Scores]]) -> str:
    learns = " and to ".join(TASKS[task].learns for task in scores)
    sentences = [f"A detector trained on drawn scenes, and a model that learns to {learns}."]
    for task, arms in scores.items():
        spec = TASKS[task]
        name = spec.scoring.shown[0]
        by_arm = ", ".join(f"{arm} {scores[name].value:.1f}" for arm, scores in arms.items())
        first = next(iter(arms.values()))[name]
        bounds = [
            f"{what} {value:.1f}" for what, value in (("blind", first.blind), ("ceiling", first.ceiling)) if value
        ]
        sentences.append(f"{spec.title}, {name}: {by_arm}" + (f" ({', '.join(bounds)})." if bounds else "."))
    return " ".join(sentences)


def _comparison(task: str, arms: Mapping[str, Scores], notes: Mapping[str, str], gain: Score | None) -> Comparison:
    there = {score.name for scores in arms.values() for score in scores.scores}
    spec = TASKS[task]
    drawn = tuple(name for name in spec.scoring.shown if name in there)
    of = next(iter(arms.values()))
    return Comparison(
        f"{spec.title} of {of.pictures} test images",
        tuple(Arm(name, scores, notes.get(name, "")) for name, scores in arms.items()),
        drawn,
        "" if gain is None else gain_of(list(arms), gain),
    )


def _headline(task: str, arms: Mapping[str, Scores], gain: Score) -> Headline:
    first, second = list(arms)[:2]
    interval = "" if gain.low is None or gain.high is None else f", 95% interval {gain.low:+.1f} to {gain.high:+.1f}"
    values = ", ".join(f"{arm} {arms[arm][gain.name].value:.1f}" for arm in (second, first))
    figure = format(gain.value, "+.0f" if abs(gain.value) >= 1 else "+.1f")
    return Headline(f"{figure} {gain.name}", f"{TASKS[task].title}: {values}{interval}")


def gain_of(arms: Sequence[str], gain: Score) -> str:
    text = f"{arms[1]} minus {arms[0]}: {gain.name} {gain.value:+.1f}"
    if gain.low is None or gain.high is None:
        return text
    unsure = gain.low <= 0 <= gain.high
    return (
        f"{text}, 95% paired bootstrap interval {gain.low:+.1f} to {gain.high:+.1f}"
        + (", which contains 0: on these images the two do not differ significantly" if unsure else "")
        + ". The interval covers the choice of test images, not that of seeds."
    )


def _charts(runs: Mapping[str, Mapping[str, Path]]) -> list[Chart]:
    charts = []
    for task, folders in runs.items():
        spec = TASKS.get(task)  # None for the detector's run, which trains no task
        name = "Detector" if spec is None else spec.title
        charts.append(chart(f"{name}: training loss", folders, "loss"))
        if spec is not None:
            charts.append(chart(f"{name}: {spec.training.watched} on val", folders, spec.training.watched))
    return [drawn for drawn in charts if drawn is not None]
