"""The demo's report, from the scores, logs, records and predictions of its stages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diptych.core import Question, Record
from diptych.runs.demo.findings import find
from diptych.runs.demo.gallery import STORYBOOK, evenly, shown
from diptych.runs.reports.charts import chart
from diptych.runs.reports.report import Arm, Chart, Comparison, Report, TimedStage
from diptych.tasks import TASKS, find_task
from diptych.tasks.scores import Score, Scores

TITLE = "Diptych: a drawn world, learnt"


def demo_report(
    *,
    title: str = TITLE,
    lead: str = "",  # by default the main scores in a sentence
    scores: Mapping[str, Mapping[str, Scores]],  # task -> arm -> scores
    notes: Mapping[str, Mapping[str, str]] | None = None,  # task -> arm -> how it was trained
    gains: Mapping[str, Score] | None = None,  # task -> the second arm minus the first, paired
    runs: Mapping[str, Mapping[str, Path]],  # "detector", "pretrain", "caption", "vqa" -> arm -> folder of the run
    records: Sequence[Record],  # the test split, with regions
    class_names: Sequence[str],
    captions: Mapping[str, str],  # of the arm that the gallery shows, by record
    answers: Mapping[str, str],  # likewise, by question
    training: Sequence[Question] = (),
    seconds: Mapping[str, float],
    memory_mib: Mapping[str, float] | None = None,
    configuration: Mapping[str, object] | None = None,
    speaker: str = "the pre-trained model",
    pictures: int = 12,
    footer: str = "",
) -> Report:
    """Return the contents of the page; `write_report(folder, ...)` writes it."""
    everything = shown(records, class_names, captions, answers, STORYBOOK)
    scored = [replace(one, answers=()) for one in everything if one.cider is not None]
    return Report(
        title=title,
        lead=lead or _lead(scores),
        configuration={name: str(value) for name, value in (configuration or {}).items()},
        comparisons=tuple(
            _comparison(task, arms, (notes or {}).get(task, {}), (gains or {}).get(task))
            for task, arms in scores.items()
        ),
        charts=tuple(_charts(runs)),
        gallery=tuple(evenly(everything, pictures)),
        gallery_text=f"Pictures at equal distances through the test split, not hand-picked. Boxes and names are the "
        f"detector's, words are from {speaker}. A waved line marks a thing that is not in the picture.",
        findings=find(records, class_names, captions, answers, training, STORYBOOK),
        worst=tuple(sorted(scored, key=lambda one: (one.cider or 0.0, one.key))[:6]),
        stages=tuple(TimedStage(name, time, (memory_mib or {}).get(name)) for name, time in seconds.items()),
        footer=footer,
    )


def _lead(scores: Mapping[str, Mapping[str, Scores]]) -> str:
    learns = " and to ".join(find_task(task).learns for task in scores)
    sentences = [f"Drawn scenes, a detector that learns to see them, a model that learns to {learns}."]
    for task, arms in scores.items():
        spec = find_task(task)
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
    spec = find_task(task)
    drawn = tuple(name for name in spec.scoring.shown if name in there)
    of = next(iter(arms.values()))
    return Comparison(
        f"{spec.title} of {of.pictures} test pictures",
        tuple(Arm(name, scores, notes.get(name, "")) for name, scores in arms.items()),
        drawn,
        "" if gain is None else gain_of(list(arms), gain),
    )


def gain_of(arms: Sequence[str], gain: Score) -> str:
    text = f"{arms[1]} minus {arms[0]}: {gain.name} {gain.value:+.1f}"
    if gain.low is None or gain.high is None:
        return text
    unsure = gain.low <= 0 <= gain.high
    return (
        f"{text}, 95% paired bootstrap interval {gain.low:+.1f} to {gain.high:+.1f}"
        + (", which holds 0: on these pictures the two do not differ significantly" if unsure else "")
        + ". The interval knows the chance of which pictures were drawn, not of the seeds."
    )


def _charts(runs: Mapping[str, Mapping[str, Path]]) -> list[Chart]:
    charts = []
    for task, folders in runs.items():
        spec = TASKS.get(task)  # None: the detector
        name = "Learning to see" if spec is None else spec.title
        charts.append(chart(f"{name}: training loss", folders, "loss"))
        if spec is not None:
            charts.append(chart(f"{name}: {spec.training.watched} on val", folders, spec.training.watched))
    return [drawn for drawn in charts if drawn is not None]
