"""The verbs that compute scores (`evaluate`, `rank`, `compare`, `score`), and `submit`, for evaluation servers."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typer import Argument, Option

from diptych.cli.app import AsJson, Features, Model, SkipBad, SplitSeed, console, hold
from diptych.cli.groups import ComputingOptions, WritingOptions, grouped
from diptych.cli.outputs import OutFile, OutFolder
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import write_atomically

if TYPE_CHECKING:
    from diptych.data.store.store import Store
    from diptych.runs.folder import ModelFolder
    from diptych.tasks import TaskSpec
    from diptych.tasks.scores import Scores

DIRECTIONS: dict[str, Any] = {"both": "both", "text-to-image": "pictures", "image-to-text": "captions"}
METRICS = Option(None, metavar="NAME", help="METEOR or SPICE as well (need Java); repeatable.")


@dataclass(frozen=True)
class ScoredOptions:
    """Options for the model and the data on which it is scored."""

    model: Model
    data: Path = Option(..., help="Store to score on, or data of your own, whose regions are extracted first.")
    split: str = Option("test", help="Split whose records are scored.")
    out: Annotated[Path | None, OutFile()] = Option(
        None, help="File to write: predictions (JSON), or by its ending a report (.html)."
    )
    features: Features = None
    split_seed: SplitSeed = 0
    skip_bad: SkipBad = False

    @contextmanager
    def opened(
        self, computing: ComputingOptions, check: Callable[[ModelFolder], TaskSpec | None]
    ) -> Iterator[tuple[ModelFolder, Store]]:
        """Open the model and the data.

        If the data is not a store, its regions are extracted into a temporary folder. `check` is called with the model
        before any image is opened. It returns the task to score, or raises an error.
        """
        from diptych.api.job import Options
        from diptych.api.scoring import scored_store
        from diptych.inference.open import open_folder

        model: ModelFolder = open_folder(self.model, **vars(computing))
        spec = check(model)
        options = Options(features=self.features, split_seed=self.split_seed, skip_bad=self.skip_bad)
        with scored_store(self.data, model, options, self.split, spec) as store:
            yield model, store

    def write(
        self, model: ModelFolder, store: Store, predicted: list[dict[str, Any]], scores: Scores, as_json: bool
    ) -> None:
        """Write the predictions, with the score of each item, or a report to the file `out`, and print the scores."""
        if self.out is not None and self.out.suffix.lower() in (".html", ".htm"):
            from diptych.runs.reports.page import write_evaluation

            write_evaluation(self.out, model, store, self.split, scores, str(self.data))
        elif self.out is not None:
            rows = {row.key: {"item_score": 100 * row.value} for row in scores.rows}
            scored = [one | rows.get(one["key"], {}) for one in predicted]
            write_atomically(
                self.out, json.dumps(scored, indent=1, ensure_ascii=False).encode(errors="backslashreplace")
            )
        of = {"weights": model.weights_checksum, "data": str(self.data), "split": self.split}
        _print_scores(scores, {"of": of | {"precision": model.model.precision}}, as_json)


@dataclass(frozen=True)
class RetrievalOptions:
    """Options that limit the ranking to a part of the queries and candidates, or divide it into galleries."""

    panel: ClassVar[str] = "Retrieval"
    direction: Literal["both", "text-to-image", "image-to-text"] = Option(
        "both", help="Search images by captions, captions by images, or both."
    )
    queries: int | None = Option(
        None, min=1, help="Queries ranked in each direction; default: all, or 100 with --shortlist."
    )
    shortlist: int | None = Option(None, min=1, help="Candidates scored for each query; default: all.")
    shortlist_by: str | None = Option(
        None, metavar="MODEL", help="Two-tower model (tden) that picks candidates; default: a regression."
    )
    folds: int = Option(1, min=1, help="Galleries that the split is divided into: 5 for COCO's 1k test set.")
    pairs: Annotated[Path | None, OutFolder("pairs")] = Option(
        None, help="Folder for the scores of pairs, to resume an interrupted run."
    )


@dataclass(frozen=True)
class SubmittedOptions(ScoredOptions):
    """Options for the model, the data, and the file for an evaluation server."""

    data: Path = Option(..., help="Store to predict on, or data of your own, whose regions are extracted first.")
    split: str = Option("test", help="Split whose records are predicted; a server needs all of them.")
    out: Annotated[Path, OutFile()] = Option(..., help="File to write for the evaluation server.")


@grouped
def evaluate(
    *,
    scored: ScoredOptions,
    task: str | None = Option(None, help="Task to score, if it is not the one the model was last trained for."),
    extra_metrics: list[str] | None = METRICS,
    without_images: bool = Option(
        False, "--without-images", help="Score with blank regions, and the paired gain of the same model with images."
    ),
    writing: WritingOptions,
    computing: ComputingOptions,
    as_json: AsJson = False,
) -> None:
    """Score a model on a split, with confidence intervals, a blind baseline and a human ceiling."""
    from diptych.runs.evaluation.evaluate import check_scored, score_model

    extra = extra_metrics or ()

    def check(model: ModelFolder) -> TaskSpec | None:
        return check_scored(model, task, extra, writing.over(model), without_images=without_images)[0]

    with scored.opened(computing, check) as (model, store):
        done = score_model(
            model, store, scored.split, extra, task, decoding=writing.over(model), console=console(),
            without_images=without_images,
        )  # fmt: skip
        scored.write(model, store, *done, as_json)


@grouped
def submit(
    *,
    format: str = Option(
        ..., metavar="coco|vqa|vcr", help="Format of the server: coco (captions), vqa (answers) or vcr (choices)."
    ),
    scored: SubmittedOptions,
    writing: WritingOptions,
    computing: ComputingOptions,
) -> None:
    """Write a model's predictions as a file for an evaluation server, without scores."""
    from diptych.runs.evaluation.submit import submit as write_predictions
    from diptych.runs.evaluation.submit import submitted_task

    def check(model: ModelFolder) -> None:
        submitted_task(model, format, writing.over(model))

    with scored.opened(computing, check) as (model, store):
        print(write_predictions(model, store, scored.split, format, scored.out, writing.over(model), console()))


@grouped
def rank(
    *,
    scored: ScoredOptions,
    task: str = Option("retrieval", help="Task to score; a pre-trained model that matches pairs can search too."),
    retrieval: RetrievalOptions,
    computing: ComputingOptions,
    as_json: AsJson = False,
) -> None:
    """Score retrieval: rank the images of a split for each text, and the texts for each image."""
    if retrieval.pairs is not None:
        hold(retrieval.pairs, "pairs")
    from diptych.runs.evaluation.evaluate import check_scored, score_model
    from diptych.runs.evaluation.retrieve import Extent

    of, by = retrieval, None
    if of.shortlist_by is not None:
        from diptych.inference.open import open_folder

        by = open_folder(of.shortlist_by, device=computing.device, precision=computing.precision)
    extent = Extent(of.queries, of.shortlist, by=by, folds=of.folds, asks=DIRECTIONS[of.direction])
    chosen = extent if extent != Extent() else None

    def check(model: ModelFolder) -> TaskSpec | None:
        return check_scored(model, task, limited=chosen is not None or of.pairs is not None)[0]

    with scored.opened(computing, check) as (model, store):
        done = score_model(model, store, scored.split, (), task, chosen, of.pairs, console=console())
        scored.write(model, store, *done, as_json)


def compare(
    *,
    first: str = Argument(metavar="A", help="Model folder, run folder or user/name on the hub."),
    second: str = Argument(metavar="B", help="Model of the same task, or a row of a paper's table: SYSTEM/TABLE/ROW."),
    data: Path = Option(..., help="Store to score on, or data of your own, whose regions are extracted first."),
    split: str = Option("test", help="Split whose records are scored."),
    task: str | None = Option(None, help="Task to score, if it is not the one the models were last trained for."),
    skip_bad: SkipBad = False,
    revision: list[str] | None = Option(None, help="Revision of A and B on the hub; given twice: of A, then of B."),
    out: Annotated[Path | None, OutFile()] = Option(None, help="File for the report (Markdown), if B is a row."),
    as_json: AsJson = False,
) -> None:
    """Compare two models on the same images (B minus A, with its 95% interval), or a model with a paper's numbers.

    B is then a row of a paper's table. The exit code is 1 if a score differs from the paper's number by more than 1%.
    """
    from diptych.api.scoring import compare_with_row, paired_gain
    from diptych.systems.catalogue import find_row

    given: list[str | None] = [*revision] if revision else [None]
    row = None if Path(second).exists() else find_row(second)
    if row is None and out is not None:
        raise RecipeError(f"--out is for the report on a row of a paper's table, but {second} is none; leave it out")
    if len(given) > (2 if row is None else 1):
        raise RecipeError(f"found --revision {len(given)} times, expected one{', or two (A, then B)' * (row is None)}")
    pairs = (first, given[0]), (second, given[-1])
    from diptych.inference.open import open_folder

    if row is not None:
        from diptych.runs.evaluation.reproduce import markdown

        report = compare_with_row(open_folder(first, revision=given[0]), *row, data, split, task, skip_bad)
        report["facts"]["command"] = shlex.join(["diptych", *sys.argv[1:]])
        if out is not None:
            write_atomically(out, markdown(report).encode(errors="backslashreplace"))
        print(json.dumps(report, ensure_ascii=False) if as_json else markdown(report))
        raise SystemExit(report["verdict"] != "pass")
    one, other = (open_folder(name, revision=None if Path(name).exists() else of) for name, of in pairs)
    gain = paired_gain(one, other, data, split, task, skip_bad)
    if as_json:
        print(json.dumps({"score": gain.name, **gain.to_json()}))
        return
    low, high = gain.low or 0.0, gain.high or 0.0
    verdict = "no difference is shown" if low <= 0 <= high else f"{'B' if low > 0 else 'A'} is better"
    print("\n".join([f"{gain.name}: {gain.value:+.1f} ({low:+.1f} to {high:+.1f}); {verdict}", *gain.notes]))


def score(
    *,
    results: Path = Argument(help="File of results in COCO's or VQA's format, as any code writes it."),
    references: Path | None = Option(None, help="Reference captions (captions_*.json) of a file of captions."),
    questions: Path | None = Option(None, help="VQA questions (JSON) of a file of VQA answers."),
    annotations: Path | None = Option(None, help="VQA annotations (JSON) with the true answers to --questions."),
    training: Path | None = Option(None, help="Training captions (captions_*.json), for a blind baseline of captions."),
    extra_metrics: list[str] | None = METRICS,
    allow_missing: bool = Option(False, "--allow-missing", help="Score though some are missing; print how many."),
    as_json: AsJson = False,
) -> None:
    """Score a file of captions or answers in the format of an evaluation server."""
    if references is None and (questions is None or annotations is None):
        raise RecipeError("a file of results needs --references (captions), or --questions and --annotations (VQA)")
    from diptych.runs.evaluation.evaluate import score_file

    _print_scores(
        score_file(results, references, questions, annotations, training, extra_metrics, allow_missing), {}, as_json
    )


def _print_scores(scores: Scores, of: dict[str, Any], as_json: bool) -> None:
    from diptych.runs.reports.tables import score_table

    if as_json:
        print(json.dumps(scores.to_json() | of, indent=2, ensure_ascii=False))
    else:
        console(stderr=False).print(score_table(scores))
