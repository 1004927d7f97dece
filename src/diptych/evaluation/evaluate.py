"""`diptych evaluate`: the scores of a model on a split, or of a file of results that anyone wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from diptych.configs import derive
from diptych.core import Record
from diptych.errors import RecipeError
from diptych.evaluation.retrieve import Extent, retrieve
from diptych.loading.store import Store, iterate
from diptych.metrics.java import unavailable
from diptych.metrics.results import Results, read_answer_results, read_caption_results, read_references
from diptych.runs.folder import ModelFolder
from diptych.runs.regions import more_regions, unseen
from diptych.runs.run import predict
from diptych.sources import vqa2
from diptych.tasks.decisions import (
    nlvr_baselines,
    referring_baselines,
    score_nlvr,
    score_referring,
    score_vcr,
    vcr_baselines,
)
from diptych.tasks.scores import Scores, caption_baselines, score_captions, score_vqa, vqa_baselines
from diptych.tasks.two_towers import score_vectors
from diptych.tasks.vcr import chosen

TAUGHT = 500  # records of which the blind baseline of referring expressions learns
Predictions = list[dict[str, Any]]
DECIDED: dict[str, Callable[[Predictions, list[Record], list[Record]], Scores]] = {
    "vcr": lambda said, records, training: score_vcr(chosen(said), records, vcr_baselines(records, training)),
    "referring": lambda said, records, training: score_referring(
        {told["key"]: told["box"] for told in said}, records, referring_baselines(records, training)
    ),
    "nlvr": lambda said, records, training: score_nlvr(
        {told["key"]: told["true"] for told in said}, records, nlvr_baselines(records, training)
    ),
}


def score_model(
    model: ModelFolder,
    store: Store,
    split: str,
    extra_metrics: Sequence[str] = (),
    task: str | None = None,
    extent: Extent | None = None,
    pairs: Path | None = None,
    console: Console | None = None,
) -> tuple[list[dict[str, Any]], Scores]:
    """What it says of a split, and the scores; the blind baseline is learnt on the split that taught the model.

    `task` is another one than the model was trained for: a pre-trained model that matches pairs can search as it is.
    `extent` and `pairs` (a folder that keeps the scores of pairs) are of retrieval.
    """
    _runnable(extra_metrics)
    trained_for = task or (model.recipe.task if model.recipe is not None else None)
    if trained_for == "retrieval" and "match" in model.model.heads:
        if extra_metrics:
            raise RecipeError(
                f"{', '.join(extra_metrics)} score captions, and retrieval writes none; leave out --extra-metrics"
            )
        return retrieve(model, store, split, extent, pairs, console)
    if extent is not None or pairs is not None:
        raise RecipeError(
            "--queries, --shortlist and --pairs are of retrieval by a model that reads pairs (it has a head 'match'); "
            "say --task retrieval, or leave them out"
        )
    if task is not None and model.recipe is not None:
        model = replace(model, recipe=derive(model.recipe, task=task))
    said, records, asked, damaged = predict(model, store, split)
    most = model.architecture.config.max_regions
    notes = (*_left_out(damaged), *more_regions(store, store.split(split), most), *unseen(records))
    if asked.name == "retrieval":
        scores = score_vectors(said)
        return said, replace(scores, notes=(*scores.notes, *notes))
    trained_on = model.recipe.data.split if model.recipe is not None else "train"
    training = [record for record in iterate(store, trained_on) if record.split != split]
    if asked.name != "caption" and extra_metrics:
        raise RecipeError(
            f"{', '.join(extra_metrics)} score captions, and {model.folder} writes none; leave out --extra-metrics"
        )
    if asked.name in DECIDED:
        if asked.name == "referring":  # its blind baseline looks at boxes
            indices = store.split(trained_on) if trained_on != split else []
            training = [store.record(index) for index in indices[:TAUGHT]]
        scores = DECIDED[asked.name](said, records, training)
    elif asked.name == "vqa":
        answers = {prediction["key"]: prediction["answer"] for prediction in said}
        questions = [question for record in training for question in record.questions if question.answers]
        scores = score_vqa(answers, records, vqa_baselines(records, questions))
    else:
        references = {record.key: record.captions for record in records if record.captions}
        captions = {prediction["key"]: prediction["caption"] for prediction in said}
        learnt = [record.captions for record in training if record.captions]
        scores = score_captions(captions, references, caption_baselines(references, learnt), extra_metrics)
    return said, replace(scores, notes=(*scores.notes, *notes))


def _left_out(damaged: Sequence[str]) -> Iterator[str]:
    if damaged:
        yield f"{len(damaged)} damaged records were left out: {', '.join(damaged[:5])}"


def score_file(
    results: Path,
    references: Path | None = None,
    questions: Path | None = None,
    annotations: Path | None = None,
    training: Path | None = None,
    extra_metrics: Sequence[str] = (),
    allow_missing: bool = False,
) -> Scores:
    """Captions against `references`, or answers against `questions` and `annotations`, all in the servers' forms."""
    if references is not None and questions is None and annotations is None:
        _runnable(extra_metrics)
        return _caption_file(results, references, training, extra_metrics, allow_missing)
    if references is None and questions is not None and annotations is not None:
        if extra_metrics or training:
            raise RecipeError("--extra-metrics and --training go with captions (--references); leave them out")
        return _answer_file(results, questions, annotations, allow_missing)
    raise RecipeError("--results wants --references (captions), or --questions and --annotations (VQA)")


def _caption_file(
    path: Path, references: Path, training: Path | None, extra_metrics: Sequence[str], allow_missing: bool
) -> Scores:
    truths = read_references(references)
    found = read_caption_results(path, truths, allow_missing=allow_missing)
    covered = {key: captions for key, captions in truths.items() if key in found.predictions}
    learnt = list(read_references(training).values()) if training is not None else []
    baselines = caption_baselines(covered, learnt)
    return _noted(score_captions(found.predictions, covered, baselines, extra_metrics, found.coverage), found)


def _answer_file(path: Path, questions: Path, annotations: Path, allow_missing: bool) -> Scores:
    records = vqa2.read(questions, annotations)
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
