"""`diptych evaluate`: score a model on a split, or a file of results."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from diptych.core import Record, Task
from diptych.data.formats import vqa2
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Skips
from diptych.data.leakage import leakage
from diptych.data.store.store import Store, iterate, splits_in
from diptych.metrics.java import unavailable
from diptych.metrics.results import Results, read_answer_results, read_caption_results, read_references
from diptych.models.decoding import DecodingOptions
from diptych.runs.evaluation.retrieve import Extent, retrieve
from diptych.runs.folder import ModelFolder
from diptych.runs.learner import more_regions
from diptych.runs.predict import predict
from diptych.runtime.configs import derive
from diptych.runtime.errors import RecipeError, counted
from diptych.runtime.progress import tell
from diptych.tasks import find_task
from diptych.tasks.answers import outside_notes
from diptych.tasks.baselines import vqa_baselines
from diptych.tasks.caption import Captioning, caption_baselines, extra_caption_scores, score_captions
from diptych.tasks.scores import Baselines, Score, Scores
from diptych.tasks.spec import Predicted, TaskScoring, TaskSpec
from diptych.tasks.vqa import score_vqa


def score_model(
    model: ModelFolder, store: Store, split: str, extra_metrics: Sequence[str] = (), task: str | None = None,
    extent: Extent | None = None, pairs: Path | None = None, decoding: DecodingOptions | None = None,
    console: Console | None = None, without_images: bool = False,
) -> tuple[list[dict[str, Any]], Scores]:  # fmt: skip
    """Predict and score a split.

    Return the predictions and their scores. The blind baseline is fitted to the model's training split.

    `task` is by default the task that the model was trained for. `extent` and `pairs` (folder for the scores of pairs)
    are only for retrieval, `decoding` only for captions. `without_images` predicts with blank regions. If the task can
    compare predictions, the gain by images is added. Raises RecipeError.
    """
    console = console or Console(quiet=True)
    limited = extent is not None or pairs is not None
    ranks = check_scored(model, task, extra_metrics, decoding, limited, without_images)[1]
    seeing = model
    if without_images and model.recipe is not None:
        model = replace(model, recipe=derive(model.recipe, data={"images": False}))
    if ranks:
        ranked, scores = retrieve(model, store, split, extent, pairs, console)
        notes = (*scores.notes, *_taught_last(model, task))
        return ranked, replace(scores, notes=notes, trained_on=leakage(model.seen, store, store.split(split)))
    predictions, records, answered, damaged = predict(model, store, split, task, decoding, console)
    spec = find_task(answered.name)  # a pre-trained model is scored on captions
    tell(console, f"scoring {counted(predictions, spec.scoring.noun)}, with intervals and baselines")
    predicted = spec.by_key(predictions)
    baselines = _baselines(spec.scoring, model, store, split, records)
    scores = spec.scoring.score(predicted, records, baselines)
    gains = (
        [] if seeing is model else list(_gain_by_images(seeing, predicted, records, store, split, task, decoding, spec))
    )
    gains += list(_gain_over_blind(spec.scoring, predicted, baselines, records))
    more = spec.scoring.extra_scores
    extra = more(predicted, records, extra_metrics) if more is not None and extra_metrics else []
    most = model.architecture.config.max_regions
    notes = (
        *_taught_last(model, task),
        *(
            ("predicted without images: all regions are blank",)
            if model.recipe and not model.recipe.data.images
            else ()
        ),
        *_written(model, decoding),
        *filter(None, [model.calibration]),
        *_left_out(damaged),
        *more_regions(store, store.split(split), most),
        *_outside(spec.scoring, answered, records, scores.items),
        *_unseen(records),
    )
    return predictions, replace(
        scores, scores=(*scores.scores, *gains, *extra), notes=(*scores.notes, *notes),
        trained_on=leakage(model.seen, store, store.split(split)),
    )  # fmt: skip


def check_scored(
    model: ModelFolder,
    task: str | None = None,
    extra_metrics: Sequence[str] = (),
    decoding: DecodingOptions | None = None,
    limited: bool = False,
    without_images: bool = False,
) -> tuple[TaskSpec | None, bool]:
    """Check, before images are opened, that `score_model` can score the model with these options.

    Returns the task, and True if the model ranks a gallery. `limited`: `extent` or `pairs` was given. Raises
    RecipeError, also for an unknown task or one that the model has not learnt.
    """
    if without_images and model.recipe is None:
        raise RecipeError(f"{model.name} was imported and has no task yet; fine-tune it, or leave out --without-images")
    _runnable(extra_metrics)
    trained_for = task or (model.recipe.task if model.recipe is not None else None)
    spec = find_task(trained_for) if trained_for is not None else None
    if spec is not None and spec.scoring.extra_scores is None and extra_metrics:
        raise RecipeError(f"--extra-metrics needs a captioner, but {model.name} is scored on {spec.name}; leave it out")
    ranks = spec is not None and spec.scoring.gallery and spec.head in model.model.heads
    if limited and not ranks:
        raise RecipeError(
            "--direction, --queries, --shortlist, --folds and --pairs need a model that scores pairs; leave them out"
        )
    if decoding is None and ranks:  # also for a pre-trained model that scores pairs
        return spec, True
    check_decoding(model, model.task(task), decoding)
    return spec, ranks


def check_decoding(model: ModelFolder, task: Task, decoding: DecodingOptions | None) -> None:
    """Raise RecipeError if decoding options are given for another task than captions."""
    if decoding is not None and not isinstance(task, Captioning):
        raise RecipeError(
            f"--beams and other decoding options apply to captions, not to {task.name} ({model.name}); leave them out"
        )


def _baselines(
    scoring: TaskScoring, model: ModelFolder, store: Store, split: str, records: Sequence[Record]
) -> Baselines | None:
    """Fit the baselines to the model's training split, without records of the scored splits."""
    if scoring.baselines is None:
        return None
    trained_on = model.recipe.data.split if model.recipe is not None else "train"
    scored = splits_in(split)
    if scoring.baseline_regions:  # these baselines need records with regions
        numbers = [number for number in store.split(trained_on) if store.split_names[number] not in scored]
        return scoring.baselines(records, [store.record(number) for number in numbers[: scoring.baseline_regions]])
    return scoring.baselines(records, [record for record in iterate(store, trained_on) if record.split not in scored])


def _taught_last(model: ModelFolder, task: str | None) -> Iterator[str]:
    """Yield a note if the model was last trained for another task than the scored one."""
    last = task if task is None or model.recipe is None else model.recipe.task
    if last is not None and last != task and not find_task(last).pretrains:
        yield f"{model.name} was last trained for {last}, not for {task}"


def _gain_over_blind(
    scoring: TaskScoring, predicted: Predicted, baselines: Baselines | None, records: Sequence[Record]
) -> Iterator[Score]:
    """Yield the paired difference in score between the model and the blind baseline, if the task defines `gain`."""
    if scoring.gain is not None and baselines is not None and baselines.predicted is not None:
        gain = scoring.gain(baselines.predicted, predicted, records)
        yield replace(gain, name=f"{gain.name} above blind")


def _gain_by_images(
    model: ModelFolder, blind: Predicted, records: Sequence[Record], store: Store, split: str, task: str | None,
    decoding: DecodingOptions | None, spec: TaskSpec,
) -> Iterator[Score]:  # fmt: skip
    """Yield the paired difference in score between predictions with and without images, if the task defines `gain`."""
    if spec.scoring.gain is not None:
        seen = spec.by_key(predict(model, store, split, task, decoding).predictions)
        gain = spec.scoring.gain(blind, seen, records)
        yield replace(gain, name=f"{gain.name} gained by images")


def _written(model: ModelFolder, decoding: DecodingOptions | None) -> Iterator[str]:
    """Yield a note on decoding options that differ from the recipe's."""
    if decoding is not None and model.recipe is not None:
        usual = model.recipe.decoding.model_dump()
        changed = {name: value for name, value in decoding.model_dump().items() if value != usual[name]}
        if changed:
            values = (f"{name} {value} (recipe: {usual[name]})" for name, value in changed.items())
            yield f"captions written with {', '.join(values)}"


def _outside(scoring: TaskScoring, task: Task, records: Sequence[Record], items: int) -> Iterator[str]:
    """Yield a note on items whose answer the model cannot give."""
    if scoring.outside is not None:
        yield from outside_notes(scoring.outside(task, records), items, "items", "can never be right")


def _unseen(records: Sequence[Record]) -> Iterator[str]:
    """Yield a note on images without regions."""
    bare = [record.key for record in records if record.regions is None or not len(record.regions)]
    if bare:
        yield f"{len(bare)} of {len(records)} images have no region (the first: {bare[0]}): predicted without regions"


def _left_out(damaged: Sequence[str]) -> Iterator[str]:
    if damaged:
        yield f"{len(damaged)} damaged records were left out: {', '.join(damaged[:5])}"


def score_file(
    results: Path,
    references: Path | None = None,
    questions: Path | None = None,
    annotations: Path | None = None,
    training: Path | None = None,
    extra_metrics: Sequence[str] | None = None,
    allow_missing: bool = False,
) -> Scores:
    """Score a results file of captions (COCO format) or answers (VQA format).

    For captions, `references` is required; for answers, `questions` and `annotations`. Raises RecipeError and
    DataError.
    """
    extra_metrics = extra_metrics or ()
    if references is not None and questions is None and annotations is None:
        _runnable(extra_metrics)
        return _caption_file(results, references, training, extra_metrics, allow_missing)
    if references is None and questions is not None and annotations is not None:
        if extra_metrics or training:
            raise RecipeError("--extra-metrics and --training need captions (--references); leave them out")
        return _answer_file(results, questions, annotations, allow_missing)
    raise RecipeError("pass --references (to score captions), or --questions and --annotations (to score VQA)")


def _caption_file(
    path: Path, references: Path, training: Path | None, extra_metrics: Sequence[str], allow_missing: bool
) -> Scores:
    skips = Skips()
    truths = read_references(references, skips)
    results = read_caption_results(path, truths, allow_missing=allow_missing)
    covered = {key: captions for key, captions in truths.items() if key in results.predictions}
    learnt = list(read_references(training, skips).values()) if training is not None else []
    scores = score_captions(results.predictions, covered, caption_baselines(covered, learnt), results.coverage)
    extra = extra_caption_scores(results.predictions, covered, extra_metrics)
    notes = (*scores.notes, *([str(skips)] if skips.counts else []))
    return _noted(replace(scores, scores=(*scores.scores, *extra), notes=notes), results)


def _answer_file(path: Path, questions: Path, annotations: Path, allow_missing: bool) -> Scores:
    wanted = Wanted()
    # The images are not opened, so their names do not matter.
    records = vqa2.read(wanted, Source(questions), Source(annotations), name=str)
    keys = [question.key for record in records for question in record.questions]
    results = read_answer_results(path, keys, allow_missing=allow_missing)
    covered = [
        replace(record, questions=tuple(q for q in record.questions if q.key in results.predictions))
        for record in records
    ]
    scores = score_vqa(results.predictions, covered, vqa_baselines(covered), results.coverage)
    if wanted.skips.counts:
        note = f"left out of {questions.name} and {annotations.name}: {wanted.skips}"
        scores = replace(scores, notes=(*scores.notes, note))
    return _noted(scores, results)


def _noted(scores: Scores, results: Results) -> Scores:
    notes = list(scores.notes)
    if results.missing:
        total = len(results.predictions) + len(results.missing)
        notes.append(
            f"{len(results.missing)} of {total} have no prediction and were left out: these scores are of a smaller set"
        )
    if results.empty:
        notes.append(f"{len(results.empty)} predictions are empty and score 0")
    return replace(scores, notes=tuple(notes))


def _runnable(names: Sequence[str]) -> None:
    """Raise an error if a metric in `names` needs Java and it is missing."""
    for name in names:
        unavailable(name, required=True)
