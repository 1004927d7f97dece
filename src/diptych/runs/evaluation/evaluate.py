"""`diptych evaluate`: score a model on a split, or a file of results."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from diptych.core import Record
from diptych.data.formats import vqa2
from diptych.data.formats.format import Source, Wanted
from diptych.data.store.store import Store, iterate, splits_in
from diptych.metrics.java import unavailable
from diptych.metrics.results import Results, read_answer_results, read_caption_results, read_references
from diptych.models.decoding import DecodingOptions
from diptych.runs.evaluation.retrieve import Extent, retrieve
from diptych.runs.folder import ModelFolder
from diptych.runs.run import predict
from diptych.runs.supervised import more_regions
from diptych.runs.tasks import task_of
from diptych.runtime.errors import RecipeError
from diptych.runtime.progress import tell
from diptych.tasks import find_task
from diptych.tasks.caption import Captioning, caption_baselines, extra_caption_scores, score_captions
from diptych.tasks.scores import Baselines, Scores
from diptych.tasks.spec import TaskScoring
from diptych.tasks.vqa import score_vqa, vqa_baselines


def score_model(
    model: ModelFolder,
    store: Store,
    split: str,
    extra_metrics: Sequence[str] = (),
    task: str | None = None,
    extent: Extent | None = None,
    pairs: Path | None = None,
    decoding: DecodingOptions | None = None,
    console: Console | None = None,
) -> tuple[list[dict[str, Any]], Scores]:
    """Predict on a split; return predictions and scores. The blind baseline is fitted to the model's training split.

    `task`: another task than the model was trained for; a pre-trained model that matches pairs can search. `extent` and
    `pairs` (a folder for the scores of pairs) are for retrieval, `decoding` is for captions. Raises RecipeError.
    """
    console = console or Console(quiet=True)
    _runnable(extra_metrics)
    trained_for = task or (model.recipe.task if model.recipe is not None else None)
    spec = find_task(trained_for) if trained_for is not None else None
    if spec is not None and spec.scoring.extra_scores is None and extra_metrics:
        raise RecipeError(
            f"{', '.join(extra_metrics)} score captions, and {model.folder} is scored for {spec.name}; leave out "
            "--extra-metrics"
        )
    if decoding is not None and not isinstance(built := task_of(model, task), Captioning):
        raise RecipeError(
            f"--beams and its like say how captions are written, and {model.folder} is scored for {built.name}; leave "
            "them out"
        )
    if spec is not None and spec.scoring.gallery and spec.head in model.model.heads:
        return retrieve(model, store, split, extent, pairs, console)
    if extent is not None or pairs is not None:
        raise RecipeError(
            "--asks, --queries, --shortlist, --folds and --pairs are of retrieval by a model that reads pairs (with a "
            "head 'match'); say --task retrieval, or leave them out"
        )
    predictions, records, answered, damaged = predict(model, store, split, task, decoding, console)
    spec = find_task(answered.name)  # of a pre-trained model: captions
    tell(console, f"scoring {len(predictions)} {spec.scoring.noun}, with intervals and baselines")
    predicted = spec.by_key(predictions)
    scores = spec.scoring.score(predicted, records, _baselines(spec.scoring, model, store, split, records))
    more = spec.scoring.extra_scores
    extra = more(predicted, records, extra_metrics) if more is not None and extra_metrics else []
    most = model.architecture.config.max_regions
    notes = (
        *_written(model, decoding),
        *_left_out(damaged),
        *more_regions(store, store.split(split), most),
        *_unseen(records),
    )
    return predictions, replace(scores, scores=(*scores.scores, *extra), notes=(*scores.notes, *notes))


def _baselines(
    scoring: TaskScoring, model: ModelFolder, store: Store, split: str, records: Sequence[Record]
) -> Baselines | None:
    """Fit the baselines to the model's training split, without the records that are scored."""
    if scoring.baselines is None:
        return None
    trained_on = model.recipe.data.split if model.recipe is not None else "train"
    scored = splits_in(split)
    if scoring.baseline_regions:  # these use boxes
        numbers = [number for number in store.split(trained_on) if store.split_names[number] not in scored]
        return scoring.baselines(records, [store.record(number) for number in numbers[: scoring.baseline_regions]])
    return scoring.baselines(records, [record for record in iterate(store, trained_on) if record.split not in scored])


def _written(model: ModelFolder, decoding: DecodingOptions | None) -> Iterator[str]:
    """Note the decoding options that differ from the recipe's."""
    if decoding is not None and model.recipe is not None:
        usual = model.recipe.decoding.model_dump()
        changed = {name: value for name, value in decoding.model_dump().items() if value != usual[name]}
        if changed:
            values = (f"{name} {value} (recipe: {usual[name]})" for name, value in changed.items())
            yield f"captions written with {', '.join(values)}"


def _unseen(records: Sequence[Record]) -> Iterator[str]:
    """Note images without any region."""
    bare = [record.key for record in records if record.regions is None or not len(record.regions)]
    if bare:
        yield f"{len(bare)} of {len(records)} pictures have no region (the first: {bare[0]}): predicted without them"


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
    """Score a file of captions or answers, in the formats of the evaluation servers.

    Captions need `references`; answers need `questions` and `annotations`. Raises RecipeError and DataError.
    """
    extra_metrics = extra_metrics or ()
    if references is not None and questions is None and annotations is None:
        _runnable(extra_metrics)
        return _caption_file(results, references, training, extra_metrics, allow_missing)
    if references is None and questions is not None and annotations is not None:
        if extra_metrics or training:
            raise RecipeError("--extra-metrics and --training go with captions (--references); leave them out")
        return _answer_file(results, questions, annotations, allow_missing)
    raise RecipeError("--results needs --references (captions), or --questions and --annotations (VQA)")


def _caption_file(
    path: Path, references: Path, training: Path | None, extra_metrics: Sequence[str], allow_missing: bool
) -> Scores:
    truths = read_references(references)
    results = read_caption_results(path, truths, allow_missing=allow_missing)
    covered = {key: captions for key, captions in truths.items() if key in results.predictions}
    learnt = list(read_references(training).values()) if training is not None else []
    scores = score_captions(results.predictions, covered, caption_baselines(covered, learnt), results.coverage)
    extra = extra_caption_scores(results.predictions, covered, extra_metrics)
    return _noted(replace(scores, scores=(*scores.scores, *extra)), results)


def _answer_file(path: Path, questions: Path, annotations: Path, allow_missing: bool) -> Scores:
    records = vqa2.read(Wanted(), Source(questions), Source(annotations), name=str)  # pictures are only counted
    keys = [question.key for record in records for question in record.questions]
    results = read_answer_results(path, keys, allow_missing=allow_missing)
    covered = [
        replace(record, questions=tuple(q for q in record.questions if q.key in results.predictions))
        for record in records
    ]
    return _noted(score_vqa(results.predictions, covered, vqa_baselines(covered), results.coverage), results)


def _noted(scores: Scores, results: Results) -> Scores:
    notes = list(scores.notes)
    if results.missing:
        total = len(results.predictions) + len(results.missing)
        notes.append(
            f"{len(results.missing)} of {total} have no prediction and were left out: this is another, smaller set"
        )
    if results.empty:
        notes.append(f"{len(results.empty)} predictions are empty and score 0")
    return replace(scores, notes=tuple(notes))


def _runnable(names: Sequence[str]) -> None:
    """Raise an error if Java is missing, before any work."""
    for name in names:
        unavailable(name, required=True)
