"""The report of an evaluation: scores, curves, and images with predictions. The demo builds its report of the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from diptych.data.store.store import Store
from diptych.runs.folder import ModelFolder
from diptych.runs.reports.charts import chart
from diptych.runs.reports.findings import findings_of
from diptych.runs.reports.gallery import extremes, shown
from diptych.runs.reports.html import write_report
from diptych.runs.reports.report import Arm, Chart, Comparison, Report
from diptych.runtime.errors import counted
from diptych.tasks import TASKS, find_task
from diptych.tasks.scores import Score, Scores

MOST = 60  # a report shows at most this many images


def write_evaluation(path: Path, model: ModelFolder, store: Store, split: str, scores: Scores, data: str) -> Path:
    """Write the report of a model's scores on a split of a store. `data`: the name of the data for its reader."""
    task, spec, numbers = scores.task, find_task(scores.task), store.split(split)
    worded = {number: store.words(number) for number in numbers}
    chosen, arms = set(extremes(scores.rows, MOST)), {task: {model.name: scores}}
    most = model.architecture.config.max_regions
    records = (store.record(number).best_regions(most) for number, one in worded.items() if one.key in chosen)
    images = {one.key: one.image for one in worded.values()}
    of = {
        "model": model.name,
        "weights": model.weights_checksum,
        "data": data,
        "split": split,
        "regions": store.contract.extractor,
    }
    report = Report(
        title=f"{spec.title}: {data}, {split}",
        lead=lead_of(f"{counted(scores.items, spec.scoring.noun)} of {counted(scores.pictures, 'images')}.", arms),
        configuration={name: str(value) for name, value in of.items()},
        comparisons=(comparison_of(task, arms[task], split=split),),
        charts=tuple(charts_of({task: {model.name: model.folder.parent}})),
        gallery=tuple(shown(records, store.contract.class_names, scores.rows, images=images)),
        gallery_text=f"{len(chosen)} of {scores.pictures} images. Of more than {MOST}, a third have the lowest scores, "
        "a third the highest, and the others are evenly spaced between. Boxes and class names are the "
        "detector's; the most confident are drawn.",
        findings=findings_of(scores.rows),
    )
    return write_report(path, report)


def lead_of(opening: str, scores: Mapping[str, Mapping[str, Scores]]) -> str:
    """Return `opening` and a sentence on the main score of each task. `scores`: task -> arm -> scores."""
    sentences = [opening]
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


def comparison_of(
    task: str,
    arms: Mapping[str, Scores],
    notes: Mapping[str, str] | None = None,
    gain: Score | None = None,
    split: str = "test",
) -> Comparison:
    """Return the scores of a task's arms, with a note on each arm, and the gain of the second over the first."""
    there = {score.name for scores in arms.values() for score in scores.scores}
    spec = TASKS[task]
    drawn = tuple(name for name in spec.scoring.shown if name in there)
    of = next(iter(arms.values()))
    return Comparison(
        f"{spec.title} of {of.pictures} {split} images",
        tuple(Arm(name, scores, (notes or {}).get(name, "")) for name, scores in arms.items()),
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
        + (", which contains 0: on these images the two do not differ significantly" if unsure else "")
        + ". The interval covers the choice of test images, not that of seeds."
    )


def charts_of(runs: Mapping[str, Mapping[str, Path]]) -> list[Chart]:
    charts = []
    for task, folders in runs.items():
        spec = TASKS.get(task)  # None for the detector's run, which trains no task
        name = "Detector" if spec is None else spec.title
        charts.append(chart(f"{name}: training loss", folders, "loss"))
        if spec is not None:
            charts.append(chart(f"{name}: {spec.training.watched} on val", folders, spec.training.watched))
    return [drawn for drawn in charts if drawn is not None]
