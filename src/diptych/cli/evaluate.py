"""The verb that scores: a model on a split, or a file of results that anybody's code has written."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diptych.cli.app import Device, Features, Precise, SplitSeed, app, console, hold, open_folder
from diptych.cli.writing import Writing, with_writing
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import refuse_unwritable, write_atomically

if TYPE_CHECKING:
    from diptych.models.decoding import DecodingOptions
    from diptych.runs.folder import ModelFolder
    from diptych.tasks.scores import Scores

ScoredModel = Annotated[
    str | None, typer.Option(help="Model folder, folder of a run, or user/name on the Hugging Face hub, to score.")
]
ScoredData = Annotated[
    Path | None, typer.Option(help="Store to score on, or data of your own, whose regions are then extracted first.")
]
TaskName = Annotated[
    str | None, typer.Option(help="Task to score, where it is not the one that the model was trained for last.")
]
Submit = Annotated[
    str | None,
    typer.Option(
        metavar="FORM",
        help="Form of a server, coco, vqa or vcr, in which --predictions is written; nothing is scored then.",
    ),
]

ScoresAsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# Of a file of results.
ResultsFile = Annotated[
    Path | None, typer.Option(help="File of results in COCO's or VQA's format, to score instead of a model.")
]
References = Annotated[
    Path | None, typer.Option(help="Reference captions (captions_*.json) of a file of caption results.")
]
Questions = Annotated[Path | None, typer.Option(help="VQA questions (JSON) of a file of VQA results.")]
Annotations = Annotated[Path | None, typer.Option(help="VQA annotations (JSON) with the true answers to --questions.")]
TrainingCaptions = Annotated[
    Path | None,
    typer.Option(help="Training captions (captions_*.json), for the blind baseline of a file of results."),
]
ExtraMetrics = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Metric to add, METEOR or SPICE, which need Java; may be given several times."),
]
AllowMissing = Annotated[
    bool,
    typer.Option(
        "--allow-missing", help="Score a file of results in which some are missing, and print how many are there."
    ),
]

# Of retrieval.
Asks = Annotated[
    Literal["both", "captions", "pictures"],
    typer.Option(help="Retrieval: what is searched for, captions of a picture, pictures of a caption, or both."),
]
Queries = Annotated[
    int | None,
    typer.Option(
        min=1, help="Retrieval: queries each way that are ranked exactly; default: all, or 100 with --shortlist."
    ),
]
Shortlist = Annotated[
    int | None, typer.Option(min=1, help="Retrieval: candidates of each query that are scored; default: all.")
]
ShortlistBy = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Retrieval: model with vectors (such as tden) that picks the candidates; default: a regression.",
    ),
]
Pairs = Annotated[
    Path | None,
    typer.Option(help="Retrieval: folder that keeps the scores of pairs, so that an interrupted run continues."),
]
Folds = Annotated[
    int,
    typer.Option(min=1, help="Retrieval: galleries that the split is divided into: 5 for COCO's 1k test set."),
]


# Options that say nothing in the other way of scoring.
OF_RESULTS = ("references", "questions", "annotations", "training", "allow_missing")
OF_MODEL = ("split", "predictions", "submit", "features", "split_seed", "task", "asks", "queries", "shortlist",
            "shortlist_by", "folds", "pairs", "device", "precision")  # fmt: skip


@app.command()
@with_writing
def evaluate(
    *,
    context: typer.Context,
    model: ScoredModel = None,
    data: ScoredData = None,
    split: Annotated[str, typer.Option(help="Split whose records are scored.")] = "test",
    predictions: Annotated[Path | None, typer.Option(help="JSON file to write the model's predictions to.")] = None,
    submit: Submit = None,
    features: Features = None,
    split_seed: SplitSeed = 0,
    results: ResultsFile = None,
    references: References = None,
    questions: Questions = None,
    annotations: Annotations = None,
    training: TrainingCaptions = None,
    extra_metrics: ExtraMetrics = None,
    allow_missing: AllowMissing = False,
    task: TaskName = None,
    asks: Asks = "both",
    queries: Queries = None,
    shortlist: Shortlist = None,
    shortlist_by: ShortlistBy = None,
    folds: Folds = 1,
    pairs: Pairs = None,
    writing: Writing,
    device: Device = "auto",
    precision: Precise = "auto",
    as_json: ScoresAsJson = False,
) -> None:
    """Score a model, or a file of results: each figure with its interval, beside a blind baseline and a ceiling."""
    from diptych.runs.evaluation.evaluate import score_file, score_model
    from diptych.runs.evaluation.retrieve import Extent
    from diptych.runs.evaluation.submit import submit as write_for_a_server
    from diptych.runs.extraction import store_of

    of, metrics = dict[str, object](), extra_metrics or ()
    _refuse_idle(context, results, model)
    _check_submit(submit, predictions, results, task)
    if pairs is not None:
        hold(pairs)
    if results is not None and model is None and data is None and not writing.is_asked:
        scores = score_file(results, references, questions, annotations, training, metrics, allow_missing)
    elif results is None and model is not None and data is not None:
        opened = open_folder(model, device, precision)
        with TemporaryDirectory() as scratch:  # of data that are no store; `extract` keeps what was seen
            store = store_of(data, Path(scratch) / "store", str(opened.folder), console(), split_seed, features)
            decoding = _decoding(opened, writing) if writing.is_asked else None
            if submit is not None and predictions is not None:
                print(write_for_a_server(opened, store, split, submit, predictions, decoding, console()))
                return
            by = open_folder(shortlist_by, device, precision) if shortlist_by is not None else None
            wanted = Extent(queries, shortlist, by=by, folds=folds, asks=asks)
            extent = wanted if wanted != Extent() else None
            predicted, scores = score_model(opened, store, split, metrics, task, extent, pairs, decoding, console())
        of = _of(opened, data, split)
        _write(predictions, predicted)
    else:
        extra = "; --beams and its like are of --model" if writing.is_asked else ""
        raise RecipeError(f"evaluate needs --model and --data, or --results with --references or --questions{extra}")
    _tell(scores, of, as_json)


def _refuse_idle(context: typer.Context, results: Path | None, model: str | None) -> None:
    if (results is None) == (model is None):
        return  # which is refused for itself
    idle, way = (OF_MODEL, "--results") if model is None else (OF_RESULTS, "--model")
    given = [name for name in idle if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise RecipeError(f"{names} would change nothing of what {way} scores; leave out what is not of it")


def _tell(scores: Scores, of: dict[str, object], as_json: bool) -> None:
    from diptych.runs.reports.tables import score_table

    if as_json:
        print(json.dumps(scores.to_json() | of, indent=2, ensure_ascii=False))
    else:
        console(stderr=False).print(score_table(scores))


def _of(model: ModelFolder, data: Path, split: str) -> dict[str, object]:
    """What was scored, and how."""
    used = model.model.precision
    return {"of": {"weights": model.weights_checksum, "data": str(data), "split": split, "precision": used}}


def _write(file: Path | None, predicted: list[dict[str, Any]]) -> None:
    if file is not None:
        write_atomically(file, json.dumps(predicted, indent=1, ensure_ascii=False).encode())


def _check_submit(submit: str | None, predictions: Path | None, results: Path | None, task: str | None) -> None:
    """Raises RecipeError where a server's form is asked for, and what was given does not lead to one, and DiptychError
    where predictions cannot be written."""
    refuse_unwritable(predictions)
    if submit is not None and (predictions is None or results is not None or task is not None):
        raise RecipeError(
            f"--submit {submit} writes what --model says to a file, --predictions FILE; the form names the task, and "
            "--results and --task do not go with it"
        )


def _decoding(model: ModelFolder, writing: Writing) -> DecodingOptions:
    """How captions are written where that was asked for: the rest is as the recipe has it."""
    from diptych.models.decoding import DecodingOptions

    return writing.options(model.recipe.decoding if model.recipe is not None else DecodingOptions())
