"""A model card: what a model folder says of itself, and what its publisher says of it, as the hub's README.md."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.runs.folder import ModelFolder
from diptych.runs.tasks import task_of
from diptych.runtime.configs import first_problem
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.files import parse_json, text_of
from diptych.runtime.terminal import printable
from diptych.serving.taught import draws_its_pictures, facts, taught
from diptych.systems import SYSTEMS
from diptych.tasks import find_task, interfaces, tasks_by_verb
from diptych.tasks.scores import Score, Scores

UNSAID = "not stated by the publisher"
LONGEST = 500  # letters of what a file says


@dataclass(frozen=True)
class Publisher:
    """What no file of a model says."""

    licence: str | None = None  # of the weights, as the hub names licences: cc-by-4.0, apache-2.0
    data: str | None = None  # what it was trained on, in words
    data_licence: str | None = None
    scores: tuple[Path, ...] = ()  # files that `diptych evaluate --json` wrote


def model_card(folder: ModelFolder, repository: str, publisher: Publisher) -> str:
    """README.md: the hub's metadata in YAML, then the facts. Raises DataError for scores of other weights."""
    from huggingface_hub import ModelCardData

    tasks = taught(folder)
    words = [interfaces()[task].words for task in tasks]
    known = facts(repository, folder, tasks)
    system = SYSTEMS[folder.architecture.system]
    metadata = ModelCardData(
        license=publisher.licence,
        library_name="diptych",
        pipeline_tag=next((word.pipeline for word in words if word.pipeline is not None), None),
        tags=["diptych", folder.architecture.system, *tasks],
    )
    drawn = draws_its_pictures(folder)
    made_with = folder.architecture.packages.items()
    parts = [
        f"---\n{metadata.to_yaml()}\n---\n",
        f"# {_line(repository)}\n",
        f"{system.title} ([arXiv {system.paper}](https://arxiv.org/abs/{system.paper})), made with Diptych. "
        + (f"It {'; it '.join(word.does for word in words)}." if words else "Pre-trained, and taught no task."),
        "## How to load\n\n"
        + "".join(
            f"It was made with {package}: `pip install {package}=={version}`.\n\n" for package, version in made_with
        )
        + "```python\nimport diptych\n\n"
        + f'model = diptych.load("{repository}")\n'
        + "".join(f"{word.example}\n" for word in words[:1])
        + "```",
        "## What it is\n\n" + _table(_about(folder, known.parameters, known.knows, publisher, drawn)),
        "## Scores\n\n" + _scores(folder, known.scores, publisher.scores),
        "## Limits\n\n" + "".join(f"- {limit}\n" for limit in _limits(folder, tasks, drawn)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _about(
    folder: ModelFolder, parameters: int, knows: str, publisher: Publisher, drawn: bool
) -> Mapping[str, str | None]:
    recipe, contract = folder.recipe, folder.contract
    imported = "the authors' checkpoint, imported" if folder.untrained else None
    data = publisher.data or (knows if drawn else UNSAID)
    return {
        "system": folder.architecture.system,
        "parameters": f"{parameters:,}",
        "weights": imported or (f"trained by the recipe `{_plain(recipe.name)}`" if recipe is not None else UNSAID),
        "training": None if recipe is None or imported else (
            f"task {recipe.task}; up to {recipe.training.steps:,} steps of {recipe.training.batch} samples, seed "
            f"{recipe.training.seed}, learning rate {recipe.optimizer.lr:g}; all of it in recipe.json"
        ),
        "data": data,
        "splits": None if recipe is None or imported else (
            f"trained on `{_plain(recipe.data.split)}`"
            + (f" ({recipe.data.records:,} records of it)" if recipe.data.records else "")
            + f", weights chosen on `{_plain(recipe.data.validation)}`"
        ),
        "detector": f"{_plain(contract.extractor)}; {len(contract.class_names)} classes; "
        + f"regions: {_plain(contract.selection)}"
        + ("" if folder.detector is not None else "; not in this folder: features have to be given"),
        "words": f"{folder.architecture.config.vocabulary.size:,} pieces"
        + ("" if recipe is None else ", lower-cased" if recipe.data.lowercase else ", cased"),
        "answers": None if folder.answers is None else f"{len(folder.answers.names):,}",
        "licence of the code": "Apache-2.0 (Diptych)",
        "licence of the weights": publisher.licence or UNSAID,
        "licence of the data": publisher.data_licence or UNSAID,
    }  # fmt: skip


def _limits(folder: ModelFolder, tasks: Sequence[str], drawn: bool) -> list[str]:
    most = folder.architecture.config.max_regions
    limits = [
        "It has seen drawn scenes alone, and says nothing sensible about photographs."
        if drawn
        else "It knows pictures of the kind that it was trained on, and says something about any other, too.",
        f"It looks at {most} regions of a picture at most, those that its detector finds; what that misses it misses.",
    ]
    if folder.recipe is not None:
        specs = [tasks_by_verb()[task] for task in tasks]
        for spec, limit in ((spec, spec.required_interface.words.limit) for spec in specs):
            with suppress(RecipeError):  # a head alone: its list of answers is not there
                limits += [limit(task_of(folder, spec.name))] if limit is not None else []
    limits.append("Nobody has checked it for bias or for harmful output; it is for research.")
    return limits


def _scores(folder: ModelFolder, validated: str | None, files: Sequence[Path]) -> str:
    if files:
        return "\n\n".join(_scored(folder, path) for path in files)
    measured = (
        f"On the records that chose its weights, which flatters it: {_plain(validated.removeprefix('validation: '))}. "
        if validated
        else ""
    )
    return measured + "Scores with intervals beside a blind baseline were not given: `diptych evaluate --json`."


def _scored(folder: ModelFolder, path: Path) -> str:
    scores, of = _read_scores(path)
    if of.get("weights") != folder.weights_checksum:
        raise DataError(
            f"{path} holds scores of other weights than those of {folder.folder}; score this model: "
            f"diptych evaluate --model {folder.folder} --data DATA --json > scores.json"
        )
    head = (
        f"{find_task(scores.task).title}: {scores.items:,} of {scores.pictures:,} pictures, split "
        f"`{_line(_plain(of['split']))}` of `{_line(_plain(Path(of['data']).name))}`, computed in "
        f"{_line(_plain(of['precision']))}."
    )
    rows = ["| score | value | 95% interval | blind | ceiling |", "|---|---|---|---|---|"]
    rows += [f"| {' | '.join(_cells(score))} |" for score in scores.scores]
    return "\n".join([head, "", *rows, "", *(f"- {_line(_plain(note))}." for note in scores.notes)])


def _read_scores(path: Path) -> tuple[Scores, dict[str, Any]]:
    wanted = "wanted what `diptych evaluate --model MODEL --data DATA --json` prints"
    try:
        saved = parse_json(text_of(path))
        scores, of = Scores.from_json(saved), dict(saved["of"])
        return scores, {
            "weights": int(of["weights"]),
            "split": str(of["split"]),
            "data": str(of["data"]),
            "precision": str(of["precision"]),
        }
    except OSError as error:
        raise DataError(f"cannot read --scores {path} ({error}); {wanted}") from error
    except ValueError as error:
        raise DataError(f"cannot read --scores {path} ({first_problem(error)}); {wanted}") from error
    except (KeyError, TypeError, AttributeError, RecipeError) as error:
        raise DataError(f"--scores {path} holds something else ({type(error).__name__}: {error}); {wanted}") from error


def _cells(score: Score) -> list[str]:
    interval = "" if score.low is None or score.high is None else f"{score.low:.1f} to {score.high:.1f}"
    bounds = ["" if bound is None else f"{bound:.1f}" for bound in (score.blind, score.ceiling)]
    return [_line(_plain(score.name)), f"{score.value:.1f}", interval, *bounds]


def _table(rows: Mapping[str, str | None]) -> str:
    told = [f"| {name} | {_line(value)} |" for name, value in rows.items() if value is not None]
    return "\n".join(["| | |", "|---|---|", *told])


def _line(text: str) -> str:
    """On one line, and in one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """Of a file, which others may have written: neither a link nor a picture, and no end of a quotation."""
    return printable(text[:LONGEST]).replace("`", "'").replace("<", "&lt;").replace("[", "\\[")
