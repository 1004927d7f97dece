"""The report of an evaluation: scores, curves, and images with predictions. The demo builds its report of the same."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diptych.data.store.store import Store
from diptych.runs.folder import ModelFolder
from diptych.runs.reports.charts import chart
from diptych.runs.reports.findings import findings_of
from diptych.runs.reports.gallery import extremes, shown
from diptych.runs.reports.html import write_report
from diptych.runs.reports.report import Arm, Chart, Comparison, Report, ShownPicture
from diptych.runtime.errors import counted
from diptych.tasks import TASKS, find_task
from diptych.tasks.scores import Score, Scores

MOST = 60  # a report shows at most this many images
CHOSEN = "Of more images, a third have the lowest scores, a third the highest; the others are evenly spaced between."
Arms = Mapping[str, Mapping[str, Scores]]  # {task: {arm: scores}}


def write_evaluation(path: Path, model: ModelFolder, store: Store, split: str, scores: Scores, data: str) -> Path:
    """Write the report of a model's scores on a split of a store. `data`: the name of the data for its reader."""
    spec, arm = find_task(scores.task), model.folder.parent
    worded = {number: store.words(number) for number in store.split(split)}
    chosen, images = extremes(scores.rows, MOST), {one.key: one.image for one in worded.values()}
    most = model.architecture.config.max_regions
    records = (store.record(number).best_regions(most) for number, one in worded.items() if one.key in chosen)
    pictures = shown(records, store.contract.class_names, chosen, images=images)
    opening = f"{counted(scores.items, spec.scoring.noun)} of {counted(scores.pictures, 'images')}."
    of = {"model": model.name, "weights": model.weights_checksum, "data": data, "split": split}
    made = report_of(
        f"{spec.title}: {data}, {split}", opening, {spec.name: {model.name: scores}}, pictures,
        {spec.name: {model.name: arm}}, of | {"regions": store.contract.extractor}, split=split,
    )  # fmt: skip
    text = f"{len(pictures)} of {scores.pictures} images. {CHOSEN} Boxes and class names are the detector's."
    return write_report(path, replace(made, gallery_text=text, findings=findings_of(scores.rows)))


def report_of(
    title: str, opening: str, scores: Arms, pictures: Sequence[ShownPicture], runs: Mapping[str, Mapping[str, Path]],
    configuration: Mapping[str, object], notes: Mapping[str, Mapping[str, str]] | None = None,
    gains: Mapping[str, Score] | None = None, split: str = "test",
) -> Report:  # fmt: skip
    """Return a report of the scores of one or more arms per task.

    `opening`: the first sentence. `runs`: task (or another name) -> arm -> folder of the run. `notes`: task -> arm -> a
    sentence on its training. `gains`: task -> score of the second arm minus that of the first.
    """
    return Report(
        title, _lead(opening, scores), {name: str(value) for name, value in configuration.items()},
        tuple(_comparison(task, arms, (notes or {}).get(task, {}), (gains or {}).get(task), split)
              for task, arms in scores.items()),
        tuple(_charts(runs)), tuple(pictures),
    )  # fmt: skip


def _lead(opening: str, scores: Arms) -> str:
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


def _comparison(
    task: str, arms: Mapping[str, Scores], notes: Mapping[str, str], gain: Score | None, split: str
) -> Comparison:
    there = {score.name for scores in arms.values() for score in scores.scores}
    spec = TASKS[task]
    drawn = tuple(name for name in spec.scoring.shown if name in there)
    of = next(iter(arms.values()))
    return Comparison(
        f"{spec.title} of {of.pictures} {split} images",
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
            where = "val, estimated" if spec.training.validation else "val"  # by greedy search, or in a smaller gallery
            charts.append(chart(f"{name}: {spec.training.watched} on {where}", folders, spec.training.watched))
    return [drawn for drawn in charts if drawn is not None]
