"""`diptych evaluate`: the scores of a model on a split, or of a file of results that anyone wrote."""

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
    """What it says of a split, and the scores; the blind baseline is learnt on the split that taught the model.

    `task` is another one than the model was trained for: a pre-trained model that matches pairs can search as it is.
    `extent` and `pairs` (a folder that keeps the scores of pairs) are of retrieval, `decoding` is of captions.
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
    if decoding is not None and not isinstance(asked := task_of(model, task), Captioning):
        raise RecipeError(
            f"--beams and its like say how captions are written, and {model.folder} is scored for {asked.name}; leave "
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
    """Learnt on the split that taught the model, as far as its records are not those that are scored."""
    if scoring.baselines is None:
        return None
    taught = model.recipe.data.split if model.recipe is not None else "train"
    scored = splits_in(split)
    if scoring.baseline_regions:  # these use boxes
        numbers = [number for number in store.split(taught) if store.split_names[number] not in scored]
        return scoring.baselines(records, [store.record(number) for number in numbers[: scoring.baseline_regions]])
    return scoring.baselines(records, [record for record in iterate(store, taught) if record.split not in scored])


def _written(model: ModelFolder, decoding: DecodingOptions | None) -> Iterator[str]:
    """How captions were written, where that was not the way of the recipe."""
    if decoding is not None and model.recipe is not None:
        usual = model.recipe.decoding.model_dump()
        changed = {name: value for name, value in decoding.model_dump().items() if value != usual[name]}
        if changed:
            values = (f"{name} {value} (recipe: {usual[name]})" for name, value in changed.items())
            yield f"captions written with {', '.join(values)}"


def _unseen(records: Sequence[Record]) -> Iterator[str]:
    """Whether pictures have no region at all."""
    bare = [record.key for record in records if record.regions is None or not len(record.regions)]
    if bare:
        yield f"{len(bare)} of {len(records)} pictures have no region (the first: {bare[0]}): nothing was seen of them"


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
    """Captions against `references`, or answers against `questions` and `annotations`, all in the servers' forms."""
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
    found = read_caption_results(path, truths, allow_missing=allow_missing)
    covered = {key: captions for key, captions in truths.items() if key in found.predictions}
    learnt = list(read_references(training).values()) if training is not None else []
    scores = score_captions(found.predictions, covered, caption_baselines(covered, learnt), found.coverage)
    extra = extra_caption_scores(found.predictions, covered, extra_metrics)
    return _noted(replace(scores, scores=(*scores.scores, *extra)), found)


def _answer_file(path: Path, questions: Path, annotations: Path, allow_missing: bool) -> Scores:
    records = vqa2.read(Wanted(), Source(questions), Source(annotations), name=str)  # pictures are only counted
    asked = [question.key for record in records for question in record.questions]
    found = read_answer_results(path, asked, allow_missing=allow_missing)
    covered = [
        replace(record, questions=tuple(q for q in record.questions if q.key in found.predictions))
        for record in records
    ]
    return _noted(score_vqa(found.predictions, covered, vqa_baselines(covered), found.coverage), found)


def _noted(scores: Scores, found: Results) -> Scores:
    notes = list(scores.notes)
    if found.missing:
        asked = len(found.predictions) + len(found.missing)
        notes.append(
            f"{len(found.missing)} of {asked} have no prediction and were left out: this is another, smaller set"
        )
    if found.empty:
        notes.append(f"{len(found.empty)} predictions are empty and score 0")
    return replace(scores, notes=tuple(notes))


def _runnable(names: Sequence[str]) -> None:
    """Java is looked for before any work."""
    for name in names:
        unavailable(name, required=True)
