"""The verb that scores: a model on a split, or a file of results that anybody's code has written."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from diptych.cli.app import SplitSeed, app, console, open_folder
from diptych.errors import RecipeError


@app.command()
def evaluate(
    model: Annotated[str | None, typer.Option(help="A model folder, the folder of a run, or user/name.")] = None,
    data: Annotated[Path | None, typer.Option(help="A store, or data to look at on the way.")] = None,
    split: Annotated[str, typer.Option(help="Which records.")] = "test",
    predictions: Annotated[Path | None, typer.Option(help="Keep what it said, as JSON.")] = None,
    split_seed: SplitSeed = 0,
    results: Annotated[Path | None, typer.Option(help="Score this file in COCO's or VQA's form, not a model.")] = None,
    references: Annotated[Path | None, typer.Option(help="Its captions_*.json.")] = None,
    questions: Annotated[Path | None, typer.Option(help="Or its VQA questions,")] = None,
    annotations: Annotated[Path | None, typer.Option(help="and their answers.")] = None,
    training: Annotated[
        Path | None, typer.Option(help="Training captions_*.json, for a file's blind baseline.")
    ] = None,
    extra_metrics: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="METEOR or SPICE; they need Java.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Score what the file has; say how much.")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="Task to score, where it is not the one that the model was trained for last.")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="Retrieval: so many queries each way, exactly.")] = None,
    shortlist: Annotated[int | None, typer.Option(min=1, help="Retrieval: so many candidates a query.")] = None,
    shortlist_by: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Picked by its vectors (tden's), not by a regression.")
    ] = None,
    pairs: Annotated[Path | None, typer.Option(help="Retrieval: a folder for the scores; goes on with them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Score a model, or a file of results: each figure with its interval, beside a blind baseline and a ceiling."""
    from diptych.evaluation.evaluate import score_file, score_model
    from diptych.evaluation.retrieve import Extent
    from diptych.files import write_atomically
    from diptych.reports.tables import score_table
    from diptych.runs.extraction import store_of

    if results is not None and model is None and data is None:
        scores = score_file(results, references, questions, annotations, training, extra_metrics or (), allow_missing)
    elif results is None and model is not None and data is not None:
        opened = open_folder(model)
        with TemporaryDirectory() as scratch:  # of data that are no store; `extract` keeps what was seen
            store = store_of(data, Path(scratch) / "store", str(opened.folder), console(), split_seed)
            by = open_folder(shortlist_by) if shortlist_by is not None else None
            extent = Extent(queries, shortlist, by=by) if queries or shortlist or by else None
            said, scores = score_model(opened, store, split, extra_metrics or (), task, extent, pairs, console())
        if predictions is not None:
            write_atomically(predictions, json.dumps(said, indent=1, ensure_ascii=False).encode())
    else:
        raise RecipeError("evaluate wants --model and --data, or --results with --references or --questions")
    if as_json:
        print(json.dumps(scores.to_json(), indent=2, ensure_ascii=False))
    else:
        console(stderr=False).print(score_table(scores))
