"""The scores of a model against the numbers of a row of a paper's table, with a report that can be committed."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch
from rich.console import Console

from diptych.data.store.store import Store
from diptych.metrics.java import JAVA_METRICS, unavailable
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import WEIGHTS, ModelFolder
from diptych.runtime.configs import derive
from diptych.runtime.errors import counted
from diptych.runtime.files import sha256_of
from diptych.systems.ledger import LedgerRow, TablePart
from diptych.tasks.scores import Scores

TOLERANCE = 0.01  # largest difference that passes, as a share of the paper's number
RULE = f"A score, rounded to the paper's digits, passes if it is within {TOLERANCE:.0%} of the paper's number."


def reproduce(
    model: ModelFolder, row: LedgerRow, given: Mapping[str, tuple[TablePart, str, str]], store: Store, split: str,
    task: str | None, console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Score a model on a split, and compare it with the numbers `given` of a row.

    Return the verdict, each number, and what the scores depend on. The verdict is `pass` if at least one number was
    scored, and all scored numbers pass. Raises RecipeError and DataError, like `score_model`.
    """
    extra = [name for name in given if name in JAVA_METRICS and unavailable(name) is None]
    beams = next(part.beams for part, _, _ in given.values())
    decoding = derive(model.decoding, beams=beams) if beams is not None else None
    scores = score_model(model, store, split, extra, task, decoding=decoding, console=console)[1]
    numbers = [_compared(name, *number, scores) for name, number in given.items()]
    passed = [one["passes"] for one in numbers if one["passes"] is not None]
    decoded = {"decoding": (decoding or model.decoding).model_dump()} if scores.task == "caption" else {}
    facts = {
        "paper": f"{row.paper.cite}, {row.table.title}, {row.row.name}", "imported": model.untrained,
        "weights sha256": sha256_of(model.folder / WEIGHTS), "store sha256": store.content,
        "features": f"{store.contract.extractor}, {store.contract.selection}", "precision": model.model.precision,
        "split": f"{split}: {counted(scores.pictures, 'images')}, {counted(scores.items, 'items')}", **decoded,
        "versions": f"diptych {version('diptych')}, torch {torch.__version__}, Python {platform.python_version()}",
    }  # fmt: skip
    return {
        "verdict": "pass" if passed and all(passed) else "fail", "row": row.id, "rule": RULE, "numbers": numbers,
        "passed": f"{sum(passed)} of {counted(len(passed), 'scored numbers')}", "facts": facts,
        "notes": [*filter(None, [scores.warning, scores.trained_on and scores.trained_on.text]), *scores.notes],
    }  # fmt: skip


def markdown(report: Mapping[str, Any]) -> str:
    """Return a report of `reproduce` as a page of Markdown."""
    lines = [f"# {report['verdict']}: {report['row']}, {report['passed']}", "", report["rule"], ""]
    lines += ["| column | score | paper | here | 95% interval | result |", "|---|---|---|---|---|---|"]
    for one in report["numbers"]:
        interval = "{:.1f} to {:.1f}".format(*one["interval"]) if one.get("interval") else ""
        cells = (one["column"], one["score"], one["paper"], one.get("here", ""), interval, one["result"])
        lines.append(f"| {' | '.join(cells)} |")
    facts = [*(f"{name}: {value}" for name, value in report["facts"].items()), *report["notes"]]
    return "\n- ".join(["\n".join([*lines, ""]), *facts]) + "\n"


def _compared(name: str, part: TablePart, column: str, printed: str, scores: Scores) -> dict[str, Any]:
    """Return a number with its score, and if it passes; None: there is no such score, and `result` has the reason."""
    shown = {"column": f"{part.title} {column}", "score": name, "paper": printed}
    if name not in scores:
        reason = unavailable(name) if name in JAVA_METRICS else "these data give no such score"
        return shown | {"passes": None, "result": f"not scored: {reason}"}
    here = f"{scores[name].value:.{len(printed.partition('.')[2])}f}"  # with the paper's number of digits
    passes = abs(float(here) - float(printed)) <= TOLERANCE * float(printed) + 1e-9  # decimal numbers are not exact
    return {**shown, **scores[name].to_json(), "here": here, "passes": passes, "result": ("fail", "pass")[passes]}
