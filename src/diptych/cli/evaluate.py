"""The verb `evaluate`: score a model on a split, or a file of results that any code has written."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer import Option

from diptych.cli.app import Features, SplitSeed, app, console, hold, open_folder
from diptych.cli.groups import ComputingOptions, WritingOptions, grouped
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import refuse_unwritable, write_atomically

if TYPE_CHECKING:
    from diptych.runs.evaluation.retrieve import Extent
    from diptych.runs.folder import ModelFolder
    from diptych.tasks.scores import Scores


@dataclass(frozen=True)
class ModelOptions:
    """Options of scoring a model on data."""

    model: str | None = Option(None, help="Model folder, run folder or user/name on the Hugging Face hub, to score.")
    data: Path | None = Option(None, help="Store to score on, or data of your own, whose regions are extracted first.")
    split: str = Option("test", help="Split whose records are scored.")
    predictions: Path | None = Option(None, help="JSON file to write the model's predictions to.")
    submit: str | None = Option(
        None, metavar="FORM", help="Write --predictions in the format of a server, coco, vqa or vcr; nothing is scored."
    )
    features: Features = None
    split_seed: SplitSeed = 0


@dataclass(frozen=True)
class ResultsOptions:
    """Options of scoring a file of results against references."""

    results: Path | None = Option(None, help="File of results in COCO's or VQA's format, to score instead of a model.")
    references: Path | None = Option(None, help="Reference captions (captions_*.json) of caption --results.")
    questions: Path | None = Option(None, help="VQA questions (JSON) of a file of VQA results.")
    annotations: Path | None = Option(None, help="VQA annotations (JSON) with the true answers to --questions.")
    training: Path | None = Option(None, help="Training captions (captions_*.json), for a blind baseline of --results.")
    extra_metrics: list[str] | None = Option(
        None, metavar="NAME", help="METEOR or SPICE as well (need Java); repeatable."
    )
    allow_missing: bool = Option(
        False, "--allow-missing", help="Score --results though some are missing; print how many."
    )


@dataclass(frozen=True)
class RetrievalOptions:
    """The task to score, and options of retrieval: queries, candidates, galleries."""

    task: str | None = Option(None, help="Task to score, if it is not the one the model was last trained for.")
    asks: Literal["both", "captions", "pictures"] = Option("both", help="Retrieval: search captions, pictures or both.")
    queries: int | None = Option(
        None, min=1, help="Retrieval: queries ranked in each direction; default: all, or 100 with --shortlist."
    )
    shortlist: int | None = Option(None, min=1, help="Retrieval: candidates scored for each query; default: all.")
    shortlist_by: str | None = Option(
        None, metavar="MODEL", help="Retrieval: two-tower model (tden) that picks candidates; default: a regression."
    )
    folds: int = Option(1, min=1, help="Retrieval: galleries that the split is divided into: 5 for COCO's 1k test set.")
    pairs: Path | None = Option(None, help="Retrieval: folder for the scores of pairs, to resume an interrupted run.")

    def extent(self, computing: ComputingOptions) -> Extent | None:
        """Return which part of retrieval to compute; None by default."""
        from diptych.runs.evaluation.retrieve import Extent

        by = open_folder(self.shortlist_by, **vars(computing)) if self.shortlist_by is not None else None
        wanted = Extent(self.queries, self.shortlist, by=by, folds=self.folds, asks=self.asks)
        return wanted if wanted != Extent() else None


@app.command()
@grouped
def evaluate(
    context: typer.Context,
    scored: ModelOptions,
    file: ResultsOptions,
    retrieval: RetrievalOptions,
    writing: WritingOptions,
    computing: ComputingOptions,
    as_json: bool = Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Score a model, or a file of results: figures with intervals, a blind baseline and a ceiling."""
    from diptych.runs.evaluation.evaluate import score_file

    _refuse_idle(context, file.results, scored.model)
    _check_submit(scored, file, retrieval)
    if retrieval.pairs is not None:
        hold(retrieval.pairs)
    if file.results is not None and scored.model is None and scored.data is None and not writing.is_given:
        _print_scores(score_file(**vars(file)), {}, as_json)
    elif file.results is None and scored.model is not None and scored.data is not None:
        _score(scored, file.extra_metrics, retrieval, writing, computing, as_json)
    else:
        extra = "; --beams and other decoding options need --model" if writing.is_given else ""
        raise RecipeError(f"evaluate needs --model and --data, or --results with --references or --questions{extra}")


def _refuse_idle(context: typer.Context, results: Path | None, model: str | None) -> None:
    """Raise RecipeError for options that have no effect with --model, or with --results."""
    if (results is None) == (model is None):
        return  # `evaluate` reports that itself
    idle: tuple[type, ...] = (ModelOptions, RetrievalOptions, ComputingOptions) if model is None else (ResultsOptions,)
    names = [
        f.name for kind in idle for f in fields(kind) if f.name not in ("model", "data", "results", "extra_metrics")
    ]
    given = [name for name in names if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise RecipeError(f"{shown} has no effect with {'--results' if model is None else '--model'}; remove it")


def _check_submit(scored: ModelOptions, file: ResultsOptions, retrieval: RetrievalOptions) -> None:
    """Raise RecipeError if --submit lacks --predictions or comes with --results or --task.

    Raises DiptychError if --predictions cannot be written.
    """
    refuse_unwritable(scored.predictions)
    other = scored.predictions is None or file.results is not None or retrieval.task is not None
    if scored.submit is not None and other:
        raise RecipeError(
            f"--submit {scored.submit} writes the predictions of --model to --predictions FILE, for the task of that "
            "format; give --predictions, and remove --results and --task"
        )


def _score(
    scored: ModelOptions,
    metrics: list[str] | None,
    retrieval: RetrievalOptions,
    writing: WritingOptions,
    computing: ComputingOptions,
    as_json: bool,
) -> None:
    """Score a model on its data and print the scores, or write a server's file."""
    from diptych.models.decoding import DecodingOptions
    from diptych.runs.evaluation.evaluate import score_model
    from diptych.runs.evaluation.submit import submit
    from diptych.runs.extraction import store_of

    assert scored.model is not None
    assert scored.data is not None
    opened: ModelFolder = open_folder(scored.model, **vars(computing))
    split, file = scored.split, scored.predictions
    with TemporaryDirectory() as scratch:  # for data that is not a store; `diptych extract` keeps regions
        own = str(opened.folder)
        store = store_of(scored.data, Path(scratch) / "store", own, console(), scored.split_seed, scored.features)
        usual = opened.recipe.decoding if opened.recipe is not None else DecodingOptions()
        decoding = writing.options(usual) if writing.is_given else None
        if scored.submit is not None and file is not None:
            print(submit(opened, store, split, scored.submit, file, decoding, console()))
            return
        extent, pairs = retrieval.extent(computing), retrieval.pairs
        predicted, scores = score_model(
            opened, store, split, metrics or (), retrieval.task, extent, pairs, decoding, console()
        )
    if file is not None:
        write_atomically(file, json.dumps(predicted, indent=1, ensure_ascii=False).encode())
    of = {"weights": opened.weights_checksum, "data": str(scored.data), "split": split}
    _print_scores(scores, {"of": of | {"precision": opened.model.precision}}, as_json)


def _print_scores(scores: Scores, of: dict[str, Any], as_json: bool) -> None:
    from diptych.runs.reports.tables import score_table

    if as_json:
        print(json.dumps(scores.to_json() | of, indent=2, ensure_ascii=False))
    else:
        console(stderr=False).print(score_table(scores))
